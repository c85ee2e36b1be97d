"""Clients of the account routes that pretend to come from elsewhere."""

from ipaddress import ip_network

import httpx

from control_plane.contracts import ids
from control_plane.contracts.clock import SystemClock
from edge_api.account.desk import AccountDesk
from edge_api.app import ColdParts, build_app
from edge_api.client_address import client_address
from edge_api.identity import ControlPlaneLink
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.snapshot.holder import TableHolder
from tests.integration.edge_api.hot.conftest import Directory

PROXIES = [ip_network("127.0.0.0/8")]


async def test_a_client_is_not_believed_whose_header_stands_before_its_proxys() -> None:
    """Some proxies add a header of their own behind the client's; guessed keys are limited by client address."""
    directory, clock = Directory(), SystemClock()
    desk = AccountDesk(directory, ControlPlaneLink([], clock), clock,
                       lambda peer, forwarded: client_address(peer, forwarded.decode(), PROXIES))
    app = build_app(ColdParts(TableHolder(), OpenRequests(), Metrics(), lambda: "", [], desk))
    key = ids.new_secret("sk_meridian_local")
    headers = [("authorization", f"Bearer {key}"), ("X-Forwarded-For", "203.0.113.7"),
               ("x-forwarded-for", "198.51.100.2")]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://edge") as client:
        assert (await client.get("/v1/key", headers=headers)).status_code == 401
    assert directory.asked == ["198.51.100.2"]
