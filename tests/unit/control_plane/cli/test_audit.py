"""The audit log."""

from control_plane.contracts.operator import AuditView
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
