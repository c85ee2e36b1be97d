"""Every error has OpenAI's shape, and says whether and when to try again."""

import json

import pytest

from edge_api import errors
from edge_api.errors import Fault, Refusal

NO_USE = (errors.UPSTREAM_BROKEN, errors.OVER_WHOLE_LIMIT)
FAULTS = [value for value in vars(errors).values() if isinstance(value, Fault)]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.status}-{fault.code}")
def test_every_body_has_openais_shape(fault: Fault) -> None:
    body = json.loads(Refusal(fault, "why").body())
    assert body == {"error": {"message": "why", "type": fault.type, "param": None, "code": fault.code}}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.status}-{fault.code}")
def test_what_the_sdks_would_repeat_by_themselves_says_whether_that_helps(fault: Fault) -> None:
    would_repeat = (fault.status in (408, 409, 429) or fault.status >= 500) and fault not in NO_USE
    would_repeat |= fault is errors.GENERATION_NOT_YET  # they would not, and it helps
    assert dict(Refusal(fault, "why").headers())[b"x-should-retry"] == (b"true" if fault.retry else b"false")
    assert fault.retry == would_repeat


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.status}-{fault.code}")
def test_busy_and_unready_say_when_to_come_back(fault: Fault) -> None:
    assert (b"retry-after" in dict(Refusal(fault, "why").headers())) == (
        fault.status in (429, 503) and fault not in NO_USE)


@pytest.mark.parametrize(("wait_s", "seconds", "milliseconds"), [
    (0.0, b"1", b"100"), (2.4, b"2", b"2400"), (86_400.0, b"120", b"120000")])
def test_the_wait_is_within_what_the_sdks_obey(wait_s: float, seconds: bytes, milliseconds: bytes) -> None:
    headers = dict(Refusal(errors.RATE_LIMITED, "why", retry_after_s=wait_s).headers())
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (seconds, milliseconds)


def test_metadata_and_param_are_told() -> None:
    body = json.loads(Refusal(errors.INVALID_VALUE, "why", "tools", metadata={"limit": 5}).body())
    assert body["error"]["param"] == "tools"
    assert body["error"]["metadata"] == {"limit": 5}


def test_every_status_has_a_reason_phrase() -> None:
    assert {fault.status for fault in FAULTS} <= errors.REASONS.keys()
