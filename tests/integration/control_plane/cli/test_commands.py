"""The commands that operators type, against the real control plane with a real Postgres."""

import asyncio
import json
from decimal import Decimal

import msgspec

from control_plane.contracts import ids
from control_plane.contracts.operator import OperatorScope
from control_plane.contracts.usage import MeterSource, Outcome, UsageBatch, UsageRecord
from tests.integration.control_plane.cli.conftest import Meridian
from tests.integration.control_plane.replica import MODEL
from tests.integration.control_plane.simulated import EAST, WEST


def record(team_id: str, key_id: str, now_s: float) -> UsageRecord:
    return UsageRecord(
        request_id=ids.uuid7(now_s), team_id=team_id, key_id=key_id, model_id=MODEL, datacenter_id=WEST,
        price_version="pv_1", outcome=Outcome.COMPLETED, meter=MeterSource.ENGINE, streamed=True, http_status=200,
        prompt_tokens=146_012, cached_tokens=139_776, completion_tokens=412, reasoning_tokens=0, cost_usd="0.02002336",
        attempts=[], opened_at_s=now_s, duration_ms=900.0, ttft_ms=40.0, finish_reason="stop")


async def use(meridian: Meridian, team: str, key: str, count: int) -> list[str]:
    """Ships usage as an edge does, and returns the request ids, the newest first."""
    now_s = meridian.world.replica.context.clock.time_s()
    records = sorted((record(team, key, now_s) for _ in range(count)), key=lambda one: one.request_id)
    body = msgspec.json.encode(UsageBatch("boot-1", list(records)))
    answer = await meridian.world.replica.signed(meridian.world.edges[0].peer, "/edge/v1/usage", body)
    assert answer.status_code == 200, answer.text
    return [str(one.request_id) for one in reversed(records)]


async def test_a_drain_is_followed_to_its_end_and_the_status_shows_it(meridian: Meridian) -> None:
    drained = await meridian("drain", WEST, "--reason", "test", "--wait")
    assert drained.code == 0, drained.err
    assert f"then served by {EAST}" in drained.out
    assert drained.out.splitlines()[-1].startswith(f"drain of {WEST} succeeded in ")
    status = (await meridian("status", "-o", "json")).json
    assert {place["id"]: place["traffic_state"] for place in status["datacenters"]} == {WEST: "drained", EAST: "active"}


async def test_a_drained_datacenter_comes_back(meridian: Meridian) -> None:
    await meridian("drain", WEST, "--reason", "test", "--wait")
    restored = await meridian("restore", WEST, "--reason", "mended", "--wait", "-o", "json")
    assert restored.code == 0, restored.err
    assert restored.json["operation"]["state"] == "succeeded"


async def test_the_last_datacenter_is_refused_with_the_rule_and_its_numbers(meridian: Meridian) -> None:
    await meridian("drain", WEST, "--reason", "test", "--wait")
    refused = await meridian("drain", EAST, "--reason", "test", "-o", "json")
    assert (refused.code, refused.out) == (3, "")
    error = json.loads(refused.err)
    assert error["rule"] == "last_datacenter"
    assert (error["numbers"]["healthy_after"], error["numbers"]["required"]) == ("0", "1")


async def test_a_dry_run_starts_nothing(meridian: Meridian) -> None:
    assert (await meridian("drain", WEST, "--reason", "test", "--dry-run")).code == 0
    assert (await meridian("operations", "list", "-o", "json")).json == {"data": []}


async def test_a_drain_that_cannot_end_outlasts_the_wait_and_can_be_cancelled(meridian: Meridian) -> None:
    meridian.world.edges[0].open_requests = {WEST: 3}
    ran = await meridian("drain", WEST, "--reason", "test", "--wait", "--timeout", "2s")
    assert ran.code == 4, ran.out + ran.err
    operation = ran.err.split()[1]
    assert (await meridian("operations", "cancel", operation)).code == 0
    shown = (await meridian("operations", "show", operation, "-o", "json")).json
    assert shown["state"] == "cancelled"
    assert (await meridian("operations", "watch", operation)).code == 5


async def test_an_operation_is_listed_with_its_reason_and_in_the_audit_log(meridian: Meridian) -> None:
    await meridian("drain", WEST, "--reason", "new racks", "--wait")
    listed, audit = await asyncio.gather(meridian("operations", "list", "-o", "json"), meridian("audit"))
    assert [one["reason"] for one in listed.json["data"]] == ["new racks"]
    assert "(new racks)" in " ".join(audit.out.split())


async def test_an_unknown_datacenter_is_told_which_there_are(meridian: Meridian) -> None:
    ran = await meridian("drain", "nowhere", "--reason", "test")
    assert (ran.code, ran.err) == (1, f"error: there is no datacenter 'nowhere'; there are {EAST}, {WEST}\n")


async def test_a_team_and_its_keys_live_and_die(meridian: Meridian) -> None:
    team = (await meridian("teams", "create", "Acme", "-o", "json")).json
    key = (await meridian("keys", "create", "acme", "--name", "ci", "--expires-in", "1d", "-o", "json")).json
    assert ids.is_well_formed_secret(key["secret"])
    assert (await meridian("keys", "list", team["id"])).out.splitlines()[1].split()[-1] == "live"
    assert (await meridian("keys", "revoke", key["id"])).code == 0
    assert (await meridian("keys", "list", "acme")).out.splitlines()[1].split()[-1] == "revoked"


async def test_an_unknown_team_is_said_so(meridian: Meridian) -> None:
    ran = await meridian("keys", "create", "nobody", "--name", "x")
    assert (ran.code, ran.err) == (1, "error: there is no team 'nobody'\n")


async def test_usage_adds_up_to_the_last_digit(meridian: Meridian) -> None:
    team = (await meridian("teams", "create", "Acme", "-o", "json")).json
    key = (await meridian("keys", "create", "acme", "--name", "ci", "-o", "json")).json
    requests = await use(meridian, team["id"], key["id"], 3)
    summed, records, table = await asyncio.gather(
        meridian("usage", "--team", "acme", "--by", "model,datacenter", "-o", "json"),
        meridian("usage", "--records", "--limit", "2", "-o", "json"), meridian("usage"))
    [row] = summed.json["rows"]
    assert (row["model"], row["datacenter"], row["requests"]) == (MODEL, WEST, 3)
    assert Decimal(row["cost_usd"]) == 3 * Decimal("0.02002336")
    assert [one["request_id"].replace("-", "") for one in records.json["data"]] == [
        request.replace("-", "") for request in requests[:2]]
    assert "$0.06007008" in table.out


async def test_what_topology_shows_can_be_applied_again(meridian: Meridian) -> None:
    shown = await meridian("topology", "show", "-o", "json")
    file = meridian.state / "topology.json"
    file.write_text(shown.out)
    applied = await meridian("topology", "apply", "-f", str(file), "-o", "json")
    assert applied.code == 0, applied.err
    assert applied.json == shown.json


async def test_a_token_that_may_only_read_may_not_drain(meridian: Meridian) -> None:
    token = (await meridian("tokens", "create", "--name", "eyes", "--scope", "read", "-o", "json")).json["token"]
    assert (await meridian("status", token=token)).code == 0
    ran = await meridian("drain", WEST, "--reason", "test", token=token)
    assert ran.code == 1
    assert OperatorScope.OPERATE in ran.err


async def test_a_wrong_token_is_one_clear_line(meridian: Meridian) -> None:
    ran = await meridian("status", token="oper_meridian_local_wrong")
    assert ran.code == 1
    assert ran.err.startswith("error: the operator token was not accepted: ")
    assert len(ran.err.splitlines()) == 1


async def test_a_replica_that_is_away_is_passed_over(meridian: Meridian) -> None:
    meridian.urls = f"http://127.0.0.1:9,{meridian.urls}"
    assert (await meridian("status")).code == 0


async def test_machines_are_let_in_by_a_token(meridian: Meridian) -> None:
    made = await meridian("enrolment-tokens", "create", "--kind", "edge", "--subject", WEST, "-o", "json")
    assert made.json["token"].startswith("enrol_meridian_")
