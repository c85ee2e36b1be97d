"""Speaking to a replica as operators and edges do."""

from typing import Any

import httpx

from control_plane.contracts import ids
from control_plane.contracts.edge_sync import EdgeSyncAnswer, EdgeSyncRequest
from control_plane.contracts.enrolment import IdentityKind
from control_plane.contracts.keys import KeyLookup, Principal
from control_plane.contracts.operator import KeyCreated, TeamView
from tests.integration.control_plane.replica import Peer, Replica
from tests.integration.control_plane.simulated import declare, document


class Tenants:
    """A replica with a declared topology, a team with one key, an operator and an edge."""

    def __init__(self, replica: Replica, operator: dict[str, str], edge: Peer, team: TeamView, key: KeyCreated) -> None:
        self.replica, self.operator, self.edge, self.team, self.key = replica, operator, edge, team, key

    @classmethod
    async def moved_in(cls, replica: Replica) -> "Tenants":
        operator = await replica.operator()
        assert (await declare(replica, operator, document())).status_code == 200
        team = await replica.team()
        return cls(replica, operator, await replica.enrolled(IdentityKind.EDGE), team, await replica.key(team.id))

    async def put(self, path: str, **body: Any) -> httpx.Response:
        return await self.replica.client.put(f"/operator/v1/{path}", json=body, headers=self.operator)

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.replica.client.post(f"/operator/v1/{path}", json=body, headers=self.operator)

    async def get(self, path: str) -> Any:
        answer = await self.replica.client.get(f"/operator/v1/{path}", headers=self.operator)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def delete(self, path: str) -> httpx.Response:
        return await self.replica.client.delete(f"/operator/v1/{path}", headers=self.operator)

    async def look_up(self, secret: str = "") -> httpx.Response:
        body = KeyLookup(digest=ids.secret_digest(secret or self.key.secret)).model_dump_json().encode()
        return await self.replica.signed(self.edge, "/edge/v1/keys/lookup", body)

    async def principal(self, secret: str = "") -> Principal:
        answer = await self.look_up(secret)
        assert answer.status_code == 200, answer.text
        return Principal.model_validate_json(answer.content)

    async def rotated(self, **body: Any) -> KeyCreated:
        answer = await self.post(f"keys/{self.key.id}/rotate", **body)
        assert answer.status_code == 201, answer.text
        return KeyCreated.model_validate_json(answer.content)

    async def sync(self, edge: Peer | None = None, wait_s: float = 0.0, **changes: Any) -> EdgeSyncAnswer:
        """One poll of an edge that has seen nothing, unless a test says otherwise."""
        asked: dict[str, Any] = {
            "boot_id": "boot-1", "release": "0.1.0", "acked_lineage": 0, "acked_version": 0, "revocations_after": 0,
            "changes_after": 0, "open_requests": {}, "wait_s": wait_s}
        body = EdgeSyncRequest.model_validate(asked | changes).model_dump_json().encode()
        answer = await self.replica.signed(edge or self.edge, "/edge/v1/sync", body)
        assert answer.status_code == 200, answer.text
        return EdgeSyncAnswer.model_validate_json(answer.content)
