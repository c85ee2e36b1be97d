"""Carries out what the core decides, in the core's order: durable first, then visible.

Commands are executed here in the sense that their state is: a `drain` asks nothing of the engine, it is the promise to
say when no request is left inside it, and a `probe` is carried out by `probes.py`. A command that was accepted before a
restart goes on after it; its outcome is repeated until the control plane stops listing it.
"""

from collections.abc import Callable

import structlog

from control_plane.contracts.agent_sync import DesiredState
from control_plane.contracts.clock import Clock
from fleet_agent import core
from fleet_agent.store import Store

log = structlog.get_logger()


class Executor:
    """Owns the agent's state. `drive` is called with desired state that is stored already."""

    def __init__(self, store: Store, clock: Clock, drive: Callable[[DesiredState], None]) -> None:
        self._store, self._clock, self._drive = store, clock, drive
        self.state = store.load()

    def handle(self, event: core.Event) -> None:
        """Takes one event.

        Raises:
            Fenced: the store knows better than the core, which is a bug; nothing was changed.
        """
        before = self.state
        after, actions = core.step(before, event, self._clock.time_s())
        for action in actions:
            self._perform(action)
        self.state = after
        self._log_changes(before, after)

    def _perform(self, action: core.Action) -> None:
        match action:
            case core.Save(state):
                self._store.save(state)
            case core.Drive(desired):
                self._drive(desired)
            case core.Complain(reason):
                log.error("answer_refused", reason=reason)

    @staticmethod
    def _log_changes(before: core.AgentState, after: core.AgentState) -> None:
        if before.standing is not after.standing:
            log.info("standing_changed", standing=after.standing, epoch=after.epoch)
        old = {tracked.command.id: tracked.state for tracked in before.commands}
        for tracked in after.commands:
            if old.get(tracked.command.id) is not tracked.state:
                log.info("command_moved", command_id=tracked.command.id, kind=tracked.command.kind, state=tracked.state,
                         result=tracked.result)
