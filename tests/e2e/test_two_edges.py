"""Two edges beside each other are one to their clients: one balance, one set of keys, one home for each session."""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import httpx
import psutil
import pytest

from control_plane.contracts import ids
from tests.e2e.stack import LocalStack, until

pytestmark = pytest.mark.stack
MODEL = "sim/glm-5.3"
AT_ONCE = 200
TOKENS = 200
CREDIT = "0.02"  # for some forty of those
NO_FUNDS = (b'{"error":{"message":"Insufficient balance (including overdraft). Please add funds to continue.",'
            b'"type":"insufficient_quota","param":null,"code":"insufficient_funds"}}')


@dataclass
class Guest:
    """A team with one key, and a client at each edge."""

    stack: LocalStack
    slug: str
    key_id: str
    secret: str

    def order(self, *arguments: str) -> None:
        done = self.stack.meridian(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def prepaid(self, usd: str) -> None:
        self.order("teams", "billing", self.slug, "--mode", "prepaid")
        self.order("teams", "credit", self.slug, usd, "--reason", "test", "-y")

    async def ask(self, edge: int, secret: str = "", headers: dict[str, str] | None = None, **fields: Any
                  ) -> httpx.Response:
        """One short request to that edge."""
        url = self.stack.facts["edge_urls"][edge % 2].removesuffix("/v1")
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, **fields}
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            return await client.post("/v1/chat/completions", json=body, headers={
                "authorization": f"Bearer {secret or self.secret}", **(headers or {})})

    def spent_usd(self) -> Decimal:
        return Decimal(self.stack.json("usage", "--team", self.slug)["total"]["cost_usd"])

    def lent_usd(self) -> Decimal:
        """The most that edges may spend without asking again, as the product prints it."""
        [money] = self.stack.json("money", "status", self.slug)["data"]
        return Decimal(money["lent_usd"])

    def requests(self) -> int:
        return int(self.stack.json("usage", "--team", self.slug)["total"]["requests"])


@pytest.fixture
def guest(stack: LocalStack) -> Guest:
    slug = f"guest-{ids.uuid7().hex[-10:]}"
    stack.json("teams", "create", slug, "--slug", slug)
    key = stack.json("keys", "create", slug, "--name", "guest")
    return Guest(stack, slug, key["id"], key["secret"])


async def test_200_at_once_never_spend_more_than_there_is_and_then_all_are_402(guest: Guest) -> None:
    await asyncio.to_thread(guest.prepaid, CREDIT)
    asking = asyncio.gather(*(guest.ask(at, max_tokens=TOKENS) for at in range(AT_ONCE)))
    lent = []
    while not asking.done():
        lent.append(await asyncio.to_thread(guest.lent_usd))
    statuses = Counter(answer.status_code for answer in await asking)
    assert set(statuses) <= {200, 402}
    served, ends_s = statuses[200], time.monotonic() + 30
    refused: set[int] = set()
    while refused != {0, 1}:  # what one edge still holds unspent comes back to the other within seconds
        assert time.monotonic() < ends_s, "the balance never ended"
        for edge in (0, 1):
            answer = await guest.ask(edge, max_tokens=TOKENS)
            served += answer.status_code == 200
            if answer.status_code == 402:
                refused.add(edge)
                assert answer.content == NO_FUNDS
                assert answer.headers["x-should-retry"] == "false"
    await asyncio.to_thread(until, lambda: guest.requests() == served, 20, "a record for each request served")
    assert 0 < await asyncio.to_thread(guest.spent_usd) <= Decimal(CREDIT)
    assert 0 < max(lent) <= Decimal(CREDIT)


async def test_a_rotated_key_works_on_both_edges_until_its_grace_is_over(guest: Guest) -> None:
    assert {(await guest.ask(edge)).status_code for edge in (0, 1)} == {200}
    fresh = await asyncio.to_thread(guest.stack.json, "keys", "rotate", guest.key_id, "--grace", "6s")
    began_s = time.monotonic()
    for edge in (0, 1):
        assert (await guest.ask(edge)).status_code == 200
        assert (await guest.ask(edge, fresh["secret"])).status_code == 200
    assert time.monotonic() - began_s < 6
    await asyncio.sleep(6 + 5 - (time.monotonic() - began_s))
    for edge in (0, 1):
        assert (await guest.ask(edge)).status_code == 401
        assert (await guest.ask(edge, fresh["secret"])).status_code == 200


async def test_a_foreign_team_is_403_on_both_edges_and_leaves_no_record(guest: Guest) -> None:
    for edge in (0, 1):
        answer = await guest.ask(edge, headers={"x-prime-team-id": guest.stack.facts["team"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "team_mismatch")
    assert (await guest.ask(0)).status_code == 200
    await asyncio.to_thread(until, lambda: guest.requests() == 1, 15, "the only record")


async def test_a_session_has_one_home_whichever_edge_is_asked(guest: Guest) -> None:
    homes = [[(await guest.ask(edge, prompt_cache_key=f"session {number}")).headers["x-meridian-datacenter"]
              for edge in (0, 1, 0)] for number in range(12)]
    assert all(len(set(told)) == 1 for told in homes)
    assert len({told[0] for told in homes}) > 1  # not merely one for all


@contextlib.contextmanager
def control_plane_frozen(stack: LocalStack) -> Iterator[None]:
    """Every replica stands still, as behind a network that drops everything."""
    replicas = [process for process in stack.find("control-plane") if "worker" not in " ".join(process.cmdline())]
    assert replicas
    for process in replicas:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in replicas:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


async def test_without_a_control_plane_known_keys_spend_what_is_lent_and_then_it_is_503(guest: Guest) -> None:
    await asyncio.to_thread(guest.prepaid, "0.02")
    assert {(await guest.ask(edge, max_tokens=TOKENS)).status_code for edge in (0, 1)} == {200}
    with control_plane_frozen(guest.stack):
        answers = []
        ends_s = time.monotonic() + 15  # before anybody takes the replicas for dead
        while (not answers or answers[-1].status_code == 200) and time.monotonic() < ends_s:
            answers.append(await guest.ask(0, max_tokens=TOKENS))
        last = answers[-1]
    assert Counter(answer.status_code for answer in answers)[200] >= 1
    assert (last.status_code, last.json()["error"]["code"]) == (503, "admission_unavailable")
    await asyncio.to_thread(guest.stack.settle)
    assert (await guest.ask(0)).status_code == 200
