"""Situations that a run of many seeds must have reached: a rare state that never occurs is one that nothing checks."""

ENOUGH_SEEDS = 500
"""A run of at least so many seeds that misses one has failed."""

REQUIRED = (
    "a drain ended with nothing open",
    "a loss of power took unsynced bytes",
    "a message arrived twice",
    "a new lineage began",
    "a quorum of edges began a failover",
    "a restart closed requests that died with the edge",
    "a restart cut a torn tail off",
    "a stream went on in another datacenter",
    "an agent lost its disk",
    "an agent refused a stale answer",
    "an edge refused a snapshot",
    "an edge's refusal was recorded",
    "an older database took the place of the newer one",
    "an operation was continued by the other replica",
    "an operator's cancel",
    "an operator's pause",
    "an operator's resume",
    "an operator's rollback",
    "asking twice made one operation",
    "cut: agent from control plane",
    "cut: datacenter from all",
    "cut: edge from control plane",
    "cut: edge from datacenter",
    "cut: region from control plane",
    "drain cancelled",
    "drain paused",
    "drain refused",
    "drain rolled_back",
    "drain succeeded",
    "failover cancelled",
    "failover paused",
    "failover succeeded",
    "refused by rule last_datacenter",
    "refused: operation_open",
    "restore succeeded",
    "rollout paused",
    "rollout rolled_back",
    "rollout succeeded",
    "shift rolled_back",
    "shift succeeded",
    "the control plane came back",
    "the control plane refused an agent: stale_epoch",
    "the control plane refused an agent: superseded",
    "the database went away",
    "usage was shipped again after an outage",
    "usage was shipped twice and stored once",
)


def missing(reached: dict[str, int]) -> list[str]:
    """What no seed reached."""
    return [situation for situation in REQUIRED if not reached.get(situation)]
