"""`meridian recover`: the plan first, then the order, then waiting until all follow."""

import json

from control_plane.contracts.problem import Problem
from control_plane.contracts.recovery import AheadView, LineageView
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer

AHEAD = AheadView(kind="edge", id="edge_1", seen="snapshot 1.57")
BEFORE = LineageView(lineage=1, version=4, ahead=[AHEAD], open_operations=["op_1"], open_leases=3)
WHY = ("--reason", "the disk died")


def posted(api: OperatorServer) -> list[dict[str, object]]:
    return [json.loads(call.body) for call in api.calls if call.method == "POST"]


def test_a_dry_run_orders_nothing(meridian: Meridian, api: OperatorServer) -> None:
    api.lineages = [BEFORE]
    done = meridian("recover", *WHY, "--dry-run", "-o", "json")
    assert (done.code, done.json["lineage"], done.json["recovered_at"]) == (0, 2, None)
    assert [body["dry_run"] for body in posted(api)] == [True]


def test_the_plan_says_who_is_ahead_and_what_is_closed(meridian: Meridian, api: OperatorServer) -> None:
    api.lineages = [BEFORE]
    out = " ".join(meridian("recover", *WHY, "-y").out.split())
    assert "1 edges and agents have seen more than this database holds (snapshot 1.4)" in out
    assert "Lineage 2 begins; 1 operations that were under way in it are closed as failed, and 3 blocks of money" in out


def test_it_is_ordered_after_the_plan(meridian: Meridian, api: OperatorServer) -> None:
    api.lineages = [BEFORE]
    done = meridian("recover", *WHY, "-y", "-o", "json")
    assert (done.code, done.json["version"]) == (0, 5)
    assert [(body["dry_run"], body["reason"]) for body in posted(api)] == [(True, WHY[1]), (False, WHY[1])]


def test_waiting_ends_when_all_follow(meridian: Meridian, api: OperatorServer) -> None:
    late = BEFORE.model_copy(update={"ahead": [], "behind": [AHEAD]})
    api.lineages = [BEFORE, BEFORE, BEFORE, late, late.model_copy(update={"behind": []})]
    assert meridian("recover", *WHY, "-y", "--wait", "-o", "json").code == 0
    assert api.lineages == [late.model_copy(update={"behind": []})]


def test_waiting_that_is_over_is_exit_code_4_and_names_who_does_not_follow(
        meridian: Meridian, api: OperatorServer) -> None:
    api.lineages = [BEFORE.model_copy(update={"ahead": [], "behind": [AHEAD]})]
    done = meridian("recover", *WHY, "-y", "--wait", "--timeout", "0.1s")
    assert (done.code, "edge_1 do not follow yet" in " ".join(done.err.split())) == (4, True)


def test_a_refusal_is_told(meridian: Meridian, api: OperatorServer) -> None:
    api.refusal = Problem(code="nothing_to_recover", message="there is nothing to recover from")
    done = meridian("recover", *WHY, "-y")
    assert (done.code, "there is nothing to recover from" in done.err) == (1, True)


def test_status_says_that_the_database_is_an_older_copy(meridian: Meridian, api: OperatorServer) -> None:
    api.status = api.status.model_copy(update={"ahead": [AHEAD]})
    shown = meridian("status")
    assert "meridian recover --reason TEXT" in " ".join((shown.out + shown.err).split())


def test_a_reason_is_needed(meridian: Meridian) -> None:
    assert meridian("recover").code == 2
