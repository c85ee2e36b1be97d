"""Freezing automation from the command line."""

import json

import pytest

from control_plane.cli.automation import seconds_until
from control_plane.cli.errors import UsageFault
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


def sent(api: OperatorServer) -> dict[str, object]:
    body: dict[str, object] = json.loads(api.calls[-1].body)
    return body


def test_a_freeze_lasts_as_long_as_it_says(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("freeze", "--for", "2h", "--reason", "audit")
    assert (ran.code, sent(api)) == (0, {"reason": "audit", "ttl_s": 7200.0})
    assert "FROZEN" in ran.out
    assert "audit" in ran.out


def test_without_a_time_it_lasts_until_it_is_ended(meridian: Meridian, api: OperatorServer) -> None:
    assert "it is ended" in meridian("freeze", "--reason", "audit").out
    assert sent(api)["ttl_s"] is None


def test_for_and_until_are_one_too_many(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("freeze", "--for", "1h", "--until", "2999-01-01T00:00Z", "--reason", "audit")
    assert (ran.code, api.calls) == (2, [])


def test_a_freeze_needs_a_reason(meridian: Meridian) -> None:
    assert meridian("freeze", "--for", "1h").code == 2


def test_unfreezing_lets_automation_go_on(meridian: Meridian) -> None:
    meridian("freeze", "--reason", "audit")
    assert "goes on" in meridian("unfreeze", "--reason", "over").out


def test_automation_in_json_is_data(meridian: Meridian) -> None:
    meridian("freeze", "--reason", "audit")
    assert meridian("automation", "-o", "json").json == {
        "frozen": True, "until": None, "reason": "audit", "by": "operator:olga"}


def test_a_time_is_read_with_its_zone() -> None:
    assert seconds_until("1970-01-01T00:01:00+00:00", 20.0) == 40.0


@pytest.mark.parametrize("text", ["soon", "1970-01-01T00:00:01+00:00"])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(UsageFault):
        seconds_until(text, 60.0)
