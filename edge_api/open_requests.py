"""How many requests of this edge are open in each datacenter: what a drain waits for."""


class OpenRequests:
    """Counts by datacenter. A datacenter that was used once stays listed, so that its 0 is reported, too."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def enter(self, datacenter_id: str) -> None:
        self._counts[datacenter_id] = self._counts.get(datacenter_id, 0) + 1

    def leave(self, datacenter_id: str) -> None:
        self._counts[datacenter_id] -= 1

    def counts(self) -> dict[str, int]:
        return dict(self._counts)
