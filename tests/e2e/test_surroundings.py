"""What the running stack shows to the machine it runs on."""

import stat

import psutil
import pytest

from tests.e2e.stack import LocalStack

pytestmark = pytest.mark.stack


def test_every_listener_is_on_loopback(stack: LocalStack) -> None:
    addresses = {connection.laddr.ip
                 for process in stack.processes()
                 for connection in process.net_connections("inet") if connection.status == psutil.CONN_LISTEN}
    assert addresses
    assert addresses <= {"127.0.0.1", "::1"}


def test_no_secret_is_readable_by_others_or_in_a_log(stack: LocalStack) -> None:
    facts = stack.facts
    assert stat.S_IMODE((stack.state / "local.json").stat().st_mode) == 0o600
    secrets = [facts["api_key"], facts["operator_token"], facts["database_url"].split(":")[2].split("@")[0]]
    logs = list((stack.state / "logs").glob("*.log"))
    assert logs
    for log in logs:
        text = log.read_text(errors="replace")
        assert not [secret for secret in secrets if secret in text], log.name


def test_no_command_line_shows_a_secret(stack: LocalStack) -> None:
    facts = stack.facts
    password = facts["database_url"].split(":")[2].split("@")[0]
    words = [word for process in stack.processes() for word in process.cmdline()]
    assert not [word for word in words if facts["api_key"] in word or password in word]


def test_every_process_tells_its_health_and_metrics(stack: LocalStack) -> None:
    import httpx

    facts = stack.facts
    urls = [*facts["control_plane_urls"], *(url.removesuffix("/v1") for url in facts["edge_urls"]),
            *(f"http://127.0.0.1:{place['ports']['agent']}" for place in facts["datacenters"]),
            f"http://127.0.0.1:{facts['port_base'] + 22}"]
    for url in urls:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert httpx.get(url + path, trust_env=False).status_code == 200, url + path
