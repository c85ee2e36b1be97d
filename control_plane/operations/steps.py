"""What operations are made of: the names of all steps."""

from enum import StrEnum


class StepName(StrEnum):
    """A step; what it does and waits for is in the playbook that has it."""

    PREFLIGHT = "preflight"
    RAMP = "ramp"
    CLOSE = "close"
    AWAIT_EDGES = "await_edges"
    AWAIT_IDLE = "await_idle"
    EVACUATE = "evacuate"
    VERIFY = "verify"
    SETTLE = "settle"
    WARM = "warm"
    PROBE = "probe"
    OPEN = "open"
    FAIL = "fail"
    SHIFT = "shift"
    WATCH = "watch"
    UNLOAD = "unload"
    REPLACE = "replace"
    AWAIT_READY = "await_ready"
    RELOAD = "reload"
    UNDO = "undo"
