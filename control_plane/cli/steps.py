"""The steps of operations in words; a step that this release does not know is shown by its name."""

WORDS = {
    "preflight": "check the safety rules",
    "close": "send new requests elsewhere",
    "await_edges": "wait until every edge knows",
    "await_idle": "let open requests finish",
    "verify": "make sure that it stays idle",
    "settle": "mark it drained",
    "warm": "warm it up",
    "probe": "probe it",
    "open": "let new requests in",
}


def in_words(step: str) -> str:
    """What a step does."""
    return WORDS.get(step, step.replace("_", " "))
