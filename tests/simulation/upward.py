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


class Upward:
    """As `ControlPlaneClient`: stays with the replica that answered last, turns to the next when that one fails."""

    def __init__(self, network: Network, owner: Process, home: str, machine_id: str, subject: str,
                 replicas: Sequence[Place]) -> None:
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
                return Answer(status, body)
            self._replicas.append(self._replicas.pop(0))
        raise ControlPlaneAway("no replica answered")
