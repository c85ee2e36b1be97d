"""The steps of operations in words; a step that this release does not know is shown by its name."""

WORDS = {
    "preflight": "check the safety rules",
    "ramp": "move traffic by degrees",
    "close": "send new requests elsewhere",
    "await_edges": "wait until every edge knows",
    "await_idle": "let open requests finish",
    "evacuate": "move open streams elsewhere",
    "verify": "make sure that it stays idle",
    "settle": "mark it drained",
    "warm": "warm it up",
    "probe": "probe it",
    "open": "let new requests in",
    "fail": "take it out of service",
    "shift": "shift traffic by degrees",
    "watch": "watch it under traffic",
    "unload": "take its traffic away",
    "replace": "give it the new specification",
    "await_ready": "wait until it is ready",
    "reload": "give it its traffic back",
    "undo": "put it back to what it was",
}


def in_words(step: str) -> str:
    """What a step does, and what it is of where it is there more than once."""
    name, _, of = step.partition(" ")
    return WORDS.get(name, name.replace("_", " ")) + (f": {of}" if of else "")
