"""Tokens and money, summed and request by request."""

from datetime import datetime
from decimal import Decimal

import pytest

from control_plane.contracts.operator import GenerationView
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import NOW, OperatorServer


def generation(number: int) -> GenerationView:
    return GenerationView(
        request_id=f"019ac7aa-0000-7000-8000-{number:012d}", team_id="team_1", key_id="key_1", model="sim/glm-5.3",
        datacenter="us-east-1", outcome="completed", streamed=True, http_status=200, prompt_tokens=146_012,
        cached_tokens=0, completion_tokens=412, cost_usd=Decimal("0.02002336"), price_version="pv_1", attempts=1,
        created_at=NOW, duration_ms=4_120.0, ttft_ms=80.0)


def test_usage_is_summed_by_model_over_the_last_day(meridian: Meridian, api: OperatorServer) -> None:
    meridian("usage")
    query = api.calls[-1].query
    start, end = (datetime.fromisoformat(query[name][0]) for name in ("start", "end"))
    assert query["group_by"] == ["model"]
    assert (end - start).total_seconds() == pytest.approx(86_401, abs=0.1)


def test_the_table_has_exact_dollars_and_a_total(meridian: Meridian) -> None:
    lines = meridian("usage").out.splitlines()
    assert lines[2].split() == ["MODEL", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST"]
    assert lines[3].split() == ["sim/glm-5.3", "1,200", "1,234,567", "0", "4,096", "$0.7497514"]
    assert lines[5].split() == ["total", "2,400", "2,469,134", "0", "8,192", "$1.4995028"]


@pytest.mark.parametrize("form", ["table", "plain"])
def test_sums_that_are_not_whole_say_so(meridian: Meridian, api: OperatorServer, form: str) -> None:
    assert meridian("usage", "-o", form).err == ""
    api.is_truncated = True
    assert meridian("usage", "-o", form).err == "only the dearest 2 rows are shown; the total is of all\n"


def test_sums_in_json_that_are_not_whole_say_so(meridian: Meridian, api: OperatorServer) -> None:
    api.is_truncated = True
    ran = meridian("usage", "-o", "json")
    assert (ran.json["truncated"], ran.err) == (True, "")


def test_usage_may_be_grouped_by_several(meridian: Meridian, api: OperatorServer) -> None:
    out = meridian("usage", "--by", "team, datacenter").out
    assert api.calls[-1].query["group_by"] == ["team", "datacenter"]
    assert out.splitlines()[2].split()[:2] == ["TEAM", "DATACENTER"]


def test_an_unknown_group_is_a_usage_error_that_names_the_known(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("usage", "--by", "model,colour")
    assert ran.code == 2
    assert ran.err == "error: --by model,colour: name one or more of model, team, key, datacenter, commas between\n"
    assert api.calls == []


def test_usage_may_be_one_teams(meridian: Meridian, api: OperatorServer) -> None:
    meridian("usage", "--team", "acme", "--since", "2h")
    assert api.calls[-1].query["team"] == ["acme"]


def test_usage_in_json_keeps_money_a_string(meridian: Meridian) -> None:
    assert meridian("usage", "-o", "json").json["total"]["cost_usd"] == "1.4995028"


def test_all_groups_together_fit_eighty_columns(meridian: Meridian) -> None:
    out = meridian("usage", "--by", "model,team,key,datacenter").out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_records_are_listed_with_their_ids_that_clients_know(meridian: Meridian, api: OperatorServer) -> None:
    api.generations = [generation(1)]
    lines = meridian("usage", "--records").out.splitlines()
    assert lines[1].split()[0] == "req_019ac7aa000070008000000000000001"
    assert max(map(len, lines)) <= 80


def test_a_record_that_did_not_end_well_says_so_below_the_table(meridian: Meridian, api: OperatorServer) -> None:
    api.generations = [generation(1), generation(2).model_copy(update={"outcome": "client_gone"})]
    last = meridian("usage", "--records").out.splitlines()[-1].split()
    assert last == ["req_019ac7aa000070008000000000000002", "client_gone"]


def test_records_in_json_are_complete_up_to_the_limit(meridian: Meridian, api: OperatorServer) -> None:
    api.generations = [generation(number) for number in range(250)]
    found = meridian("usage", "--records", "--limit", "220", "-o", "json").json["data"]
    assert [one["request_id"] for one in found] == [one.request_id for one in api.generations[:220]]


def test_without_records_it_says_how_to_make_one(meridian: Meridian) -> None:
    assert meridian("usage", "--records").out == "No requests yet: meridian chat hello\n"
