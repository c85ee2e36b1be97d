"""How many requests of this edge are open in each datacenter, which a drain waits for, and at each deployment, by which
load is bounded."""


class OpenRequests:
    """Counts. A datacenter that was used once stays listed, so that its 0 is reported, too; a deployment is listed
    while it has any."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.by_deployment: dict[str, int] = {}

    def enter(self, datacenter_id: str, deployment_id: str = "") -> None:
        counts, deployments = self._counts, self.by_deployment
        counts[datacenter_id] = counts.get(datacenter_id, 0) + 1
        deployments[deployment_id] = deployments.get(deployment_id, 0) + 1

    def leave(self, datacenter_id: str, deployment_id: str = "") -> None:
        self._counts[datacenter_id] -= 1
        left = self.by_deployment[deployment_id] - 1
        if left:
            self.by_deployment[deployment_id] = left
        else:
            del self.by_deployment[deployment_id]

    def counts(self) -> dict[str, int]:
        return dict(self._counts)
