"""The audit log."""

import pytest

from control_plane.contracts.audit import AuditView, ChainFault, ChainView
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import NOW, OperatorServer

EVENT = AuditView(id="audit_1", at=NOW, actor="optok_019ac7aa0000700080000000deadbeef", action="operation.requested",
                  target="op_019ac7aa0000700080000000deadbee1", reason="a long reason, with many words")


def test_an_event_says_who_what_and_why(meridian: Meridian, api: OperatorServer) -> None:
    api.events = [EVENT]
    out = meridian("audit").out
    assert "optok_…adbeef" in out
    assert "operation.requested" in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_in_json_nothing_is_shortened(meridian: Meridian, api: OperatorServer) -> None:
    api.events = [EVENT]
    assert meridian("audit", "-o", "json").json["data"][0]["actor"] == EVENT.actor


def test_the_limit_holds(meridian: Meridian, api: OperatorServer) -> None:
    api.events = [EVENT] * 5
    assert len(meridian("audit", "-n", "3", "-o", "json").json["data"]) == 3


def test_an_empty_log_says_so(meridian: Meridian) -> None:
    assert meridian("audit").out == "Nothing has happened yet.\n"


def test_in_json_it_says_what_was_before_and_after(meridian: Meridian, api: OperatorServer) -> None:
    api.events = [EVENT.model_copy(update={"before": {"weight": 1}, "after": {"weight": 2}})]
    (event,) = meridian("audit", "list", "-o", "json").json["data"]
    assert (event["before"], event["after"]) == ({"weight": 1}, {"weight": 2})


def test_a_sound_chain_is_told_with_its_head(meridian: Meridian, api: OperatorServer) -> None:
    done = meridian("audit", "verify", "-o", "json")
    assert (done.code, done.json["hash"]) == (0, "ab" * 32)


def test_a_long_chain_is_walked_to_its_end(meridian: Meridian, api: OperatorServer) -> None:
    api.chain.insert(0, ChainView(seq=2, hash="cd" * 32, is_complete=False))
    assert meridian("audit", "verify", "-o", "json").json["seq"] == 3
    assert api.calls[-1].query == {"after_seq": ["2"], "after_hash": ["cd" * 32]}


def test_a_broken_chain_is_exit_code_1_and_its_first_broken_event(meridian: Meridian, api: OperatorServer) -> None:
    fault = ChainFault(seq=2, event_id="audit_2", problem="it was altered")
    api.chain = [ChainView(seq=1, hash="ab" * 32, is_complete=True, fault=fault)]
    done = meridian("audit", "verify")
    assert done.code == 1
    assert "broken at event 2 (audit_2): it was altered" in " ".join(done.err.split())


def test_an_expected_head_is_handed_on(meridian: Meridian, api: OperatorServer) -> None:
    assert meridian("audit", "verify", "--expect-head", "AB" * 32).code == 0
    assert api.calls[-1].query == {"expect_head": ["ab" * 32]}


@pytest.mark.parametrize("head", ["ab", "z" * 64])
def test_an_expected_head_that_is_no_hash_is_wrong_usage(meridian: Meridian, head: str) -> None:
    assert meridian("audit", "verify", "--expect-head", head).code == 2
