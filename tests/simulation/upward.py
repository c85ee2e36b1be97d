"""The way from edges and agents up to the control plane's replicas, and the replicas' answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from control_plane.contracts.transport import ControlPlaneAway
from tests.simulation.network import Network, Refused, Unanswered
from tests.simulation.process import Process
from tests.simulation.replicas import Place


@dataclass(frozen=True)
class Answer:
    """As much of an HTTP answer as is looked at."""

    status_code: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def epoch(self) -> bytes:
        """Its beginning, which tells an agent's epoch."""
        return self.content.partition(b",")[0]


class Upward:
    """As `ControlPlaneClient`: stays with the replica that answered last, turns to the next when that one fails."""

    def __init__(self, network: Network, owner: Process, home: str, machine_id: str, subject: str,
                 replicas: Sequence[Place], remembered: list[Answer] | None = None) -> None:
        self._remembered = [] if remembered is None else remembered
        self._network, self._owner, self._home = network, owner, home
        self._machine_id, self._subject = machine_id, subject
        self._replicas = list(replicas)

    async def post(self, path: str, content: bytes, deadline_s: float) -> Answer:
        """The first answer below 500.

        Raises:
            ControlPlaneAway: there is none.
        """
        for place in list(self._replicas):
            replica = place.process
            try:
                status, body = await self._network.ask(
                    self._home, place.name, replica,
                    lambda replica=replica: replica.serve(path, self._machine_id, self._subject, content),  # type: ignore[misc]
                    deadline_s)
            except (Unanswered, Refused):
                status, body = 599, b""
            if status < 500:
                return self._maybe_stale(Answer(status, body)) if path == "/agent/v1/sync" else Answer(status, body)
            self._replicas.append(self._replicas.pop(0))
        raise ControlPlaneAway("no replica answered")

    def _maybe_stale(self, answer: Answer) -> Answer:
        """The answer; or, when a fault says so, one of an earlier epoch that comes once more in its place."""
        if answer.status_code != 200:
            return answer
        epoch = answer.epoch
        older = [one for one in self._remembered if one.epoch != epoch]
        self._remembered[:] = [*older, answer][-4:]
        return self._network.stale(older) or answer
