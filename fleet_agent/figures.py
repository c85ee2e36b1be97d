"""What an agent tells Prometheus of itself and its fleet: the table, and the samples as they are now."""

from collections import Counter
from collections.abc import Iterator

from control_plane.contracts.agent_sync import CommandState
from control_plane.contracts.clock import Clock
from control_plane.contracts.figures import Figure, Sample, counter, gauge
from fleet_agent.agent import Agent
from fleet_agent.core import Standing

PROCESSES = gauge("agent_processes", "Engine processes by state: ready, running, absent.", "state")
RESTARTS = counter("agent_restarts", "Engine processes that ended by themselves.")
EPOCH = gauge("agent_epoch", "Highest lease epoch seen.")
GENERATION = gauge("agent_generation", "Generation of the desired state.")
SUPERSEDED = gauge("agent_superseded", "1 while another boot drives the fleet, and this one changes nothing.")
COMMANDS_OPEN = gauge("agent_open_commands", "Commands that were accepted and are not finished.")
SYNC_AGE_S = gauge("agent_sync_age_seconds", "Since the last successful sync; absent before the first.")

FIGURES = (PROCESSES, RESTARTS, EPOCH, GENERATION, SUPERSEDED, COMMANDS_OPEN, SYNC_AGE_S)


def samples(agent: Agent, clock: Clock) -> Iterator[Sample]:
    """The agent's figures now. Only single attributes are read, so any thread may ask."""
    state = agent.executor.state
    counts = Counter("ready" if process.is_ready else "running" if process.is_running else "absent"
                     for process in agent.driver.observe())
    for name in ("ready", "running", "absent"):
        yield Sample(PROCESSES, (name,), counts[name])
    open_commands = sum(one.state is CommandState.ACCEPTED for one in state.commands)
    for figure, value in ((RESTARTS, agent.driver.restarts), (EPOCH, state.epoch), (GENERATION, state.generation),
                          (SUPERSEDED, state.standing is Standing.SUPERSEDED), (COMMANDS_OPEN, open_commands)):
        yield _plain(figure, value)
    if agent.sync.synced_at_s is not None:
        yield _plain(SYNC_AGE_S, clock.monotonic_s() - agent.sync.synced_at_s)


def _plain(figure: Figure, value: float) -> Sample:
    return Sample(figure, (), float(value))
