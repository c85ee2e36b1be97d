"""A team's keys: the secret once, never again."""

import json
from datetime import datetime

import pytest

from control_plane.contracts.clock import SystemClock, utc
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


@pytest.fixture
def acme(meridian: Meridian) -> Meridian:
    """The command line, with a team."""
    meridian("teams", "create", "Acme")
    return meridian


def sent(api: OperatorServer) -> dict[str, object]:
    body = json.loads(api.calls[-1].body)
    assert isinstance(body, dict)
    return body


def test_a_shell_that_captures_a_new_key_gets_the_secret_alone(acme: Meridian) -> None:
    ran = acme("keys", "create", "acme", "--name", "ci")
    (secret,) = ran.out.splitlines()
    assert secret.startswith("sk_meridian_local_")
    assert ran.err == "Keep it: it is not shown again. It is key key_1.\n"


def test_the_secret_stays_on_one_line_however_narrow_the_terminal(acme: Meridian,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert len(acme("keys", "create", "acme", "--name", "ci").out.splitlines()[0]) > 50


def test_a_key_in_json_holds_its_secret(acme: Meridian) -> None:
    assert acme("keys", "create", "acme", "--name", "ci", "-o", "json").json["secret"].startswith("sk_meridian_")


def test_a_key_may_only_infer_unless_told_otherwise(acme: Meridian, api: OperatorServer) -> None:
    acme("keys", "create", "acme", "--name", "ci")
    assert sent(api) == {"name": "ci", "scopes": ["inference"], "expires_at": None, "allowed_models": None,
                         "regions": None}


def test_scopes_may_be_several(acme: Meridian, api: OperatorServer) -> None:
    acme("keys", "create", "acme", "--name", "ci", "--scope", "inference", "--scope", "usage:read")
    assert sent(api)["scopes"] == ["inference", "usage:read"]


def test_an_unknown_scope_is_a_usage_error_that_names_the_known(acme: Meridian) -> None:
    ran = acme("keys", "create", "acme", "--name", "ci", "--scope", "root")
    assert ran.code == 2
    assert "usage:read" in ran.err


def test_a_key_may_end(acme: Meridian, api: OperatorServer) -> None:
    acme("keys", "create", "acme", "--name", "ci", "--expires-in", "30d")
    ends_in = datetime.fromisoformat(str(sent(api)["expires_at"])) - utc(SystemClock().time_s())
    assert 29.9 < ends_in.total_seconds() / 86_400 <= 30


def test_a_key_needs_a_name(acme: Meridian) -> None:
    assert "Missing option '--name'" in acme("keys", "create", "acme").err
    assert acme("keys", "create", "acme", "--name", "").code == 2


def test_an_unknown_team_is_said_so(meridian: Meridian) -> None:
    ran = meridian("keys", "create", "nobody", "--name", "ci")
    assert (ran.code, ran.err) == (1, "error: there is no team nobody\n")


def test_the_list_has_no_secret(acme: Meridian) -> None:
    secret = acme("keys", "create", "acme", "--name", "ci", "-o", "json").json["secret"]
    listed = [acme("keys", "list", "acme", "-o", form).out for form in ("table", "plain", "json")]
    assert not any(secret in out for out in listed)
    assert secret[-4:] in listed[0]


def test_a_team_without_keys_is_told_how_to_get_one(acme: Meridian) -> None:
    assert acme("keys", "list", "acme").out == "No keys yet: meridian keys create acme --name NAME\n"


def test_a_revoked_key_is_shown_revoked(acme: Meridian) -> None:
    acme("keys", "create", "acme", "--name", "ci")
    assert acme("keys", "revoke", "key_1").code == 0
    assert acme("keys", "list", "acme").out.splitlines()[1].split()[-1] == "revoked"


def test_an_expired_key_is_shown_expired(acme: Meridian, api: OperatorServer) -> None:
    acme("keys", "create", "acme", "--name", "ci", "--expires-in", "30d")
    api.keys = [key.model_copy(update={"expires_at": utc(0)}) for key in api.keys]
    assert acme("keys", "list", "acme").out.splitlines()[1].split()[-1] == "expired"


def test_revoking_in_json_names_the_key(acme: Meridian) -> None:
    acme("keys", "create", "acme", "--name", "ci")
    assert acme("keys", "revoke", "key_1", "-o", "json").json == {"data": ["key_1"]}


def test_revoking_an_unknown_key_is_denied(meridian: Meridian) -> None:
    assert meridian("keys", "revoke", "key_9").err == "error: there is no key key_9\n"


def test_a_team_that_looks_like_a_path_stays_a_name(meridian: Meridian, api: OperatorServer) -> None:
    meridian("keys", "list", "../status")
    assert api.calls[-1].path == "/operator/v1/teams/../status/keys"
    assert api.calls[-1].method == "GET"
