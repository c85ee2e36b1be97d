"""Admission where nobody limits anybody: the edge that stands by itself."""

from edge_api.hot.services import Grant, Need


class Free:
    """What an unlimited request is let in with; all of them share it."""

    headers = b""

    def settle(self, tokens: int, cost_nusd: int) -> None:
        """Nobody counts."""

    def release(self) -> None:
        """Nothing was reserved."""


FREE = Free()


class Unlimited:
    """Lets everything in."""

    def admit_now(self, need: Need) -> Grant:
        return FREE

    async def admit(self, need: Need) -> Grant:
        return FREE
