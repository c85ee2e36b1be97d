"""The playbooks, one file a kind of operation: pure decisions over facts read in one transaction."""

from control_plane.contracts.operations import OperationKind
from control_plane.operations.decision import Decision
from control_plane.operations.facts import Facts
from control_plane.operations.playbooks import drain, failover, restore, rollout, shift
from control_plane.operations.playbooks.playbook import Playbook
from control_plane.operations.steps import StepName

PLAYBOOKS: dict[OperationKind, Playbook] = {
    OperationKind.DRAIN: drain.PLAYBOOK,
    OperationKind.RESTORE: restore.PLAYBOOK,
    OperationKind.FAILOVER: failover.PLAYBOOK,
    OperationKind.SHIFT: shift.PLAYBOOK,
    OperationKind.ROLLOUT: rollout.PLAYBOOK,
}


def decide(kind: OperationKind, step: StepName, facts: Facts) -> Decision:
    """What to do about `step` now."""
    playbook = PLAYBOOKS[kind]
    return (playbook.steps.get(step) or playbook.back[step])(facts)
