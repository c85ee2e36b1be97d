"""Teams of their own on the whole stack, and what the stack knows of what they asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from control_plane.contracts import ids
from tests.contract.clients import request_id_of
from tests.e2e.stack import LocalStack, until

MODEL = "sim/glm-5.3"


@dataclass(frozen=True)
class Guest:
    """A team with one key."""

    stack: LocalStack
    team: str
    team_id: str
    key: str
    key_id: str

    @property
    def url(self) -> str:
        """The first edge, without `/v1`."""
        return str(self.stack.facts["edge_url"]).removesuffix("/v1")

    def records(self) -> list[dict[str, Any]]:
        """The team's usage records as operators see them, the newest first."""
        page = self.stack.operator("/operator/v1/generations", team=self.team_id, limit=100)
        return list(page["data"])

    def record_of(self, header: str) -> dict[str, Any]:
        """The one record of the request that the `x-request-id` header named, as soon as it is there."""
        wanted = request_id_of(header)
        found: list[dict[str, Any]] = until(
            lambda: [record for record in self.records() if request_id_of(record["request_id"]) == wanted],
            10, f"a usage record of {header}")
        [record] = found
        return record

    @contextmanager
    def one_record(self) -> Iterator[list[dict[str, Any]]]:
        """The record of the one request that is made in the block; it is there when the block has ended."""
        known = {record["request_id"] for record in self.records()}
        found: list[dict[str, Any]] = []
        yield found
        found += until(lambda: [record for record in self.records() if record["request_id"] not in known],
                       10, "the request's usage record")
        assert len(found) == 1

    def has_record_of(self, header: str) -> bool:
        """Whether the request that the header named is among those that are recorded by now."""
        return request_id_of(header) in {request_id_of(record["request_id"]) for record in self.records()}

    def generation(self, header: str) -> dict[str, Any]:
        """What `GET /generation` says of that request to the team itself."""
        answer = self.get("/generation", id=header)
        assert answer.status_code == 200, answer.text
        data: dict[str, Any] = answer.json()["data"]
        return data

    def get(self, path: str, **query: str) -> httpx.Response:
        return httpx.get(f"{self.url}/v1{path}", params=query, headers={"authorization": f"Bearer {self.key}"},
                         timeout=10, trust_env=False)


def invite(stack: LocalStack, *settings: tuple[str, ...]) -> Guest:
    """A new team and key. Each of the settings is a command on the team, carried out before the key is used; `TEAM`
    and `KEY` in it stand for the names of the two."""
    team = stack.json("teams", "create", f"guest {ids.uuid7().hex}")
    key = stack.json("keys", "create", team["slug"], "--name", "guest")
    for words in settings:
        command = [{"TEAM": team["slug"], "KEY": key["id"]}.get(word, word) for word in words]
        done = stack.meridian(*command)
        assert done.returncode == 0, done.stderr
    return Guest(stack, team["slug"], team["id"], key["secret"], key["id"])
