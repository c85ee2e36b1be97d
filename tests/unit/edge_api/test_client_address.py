"""Whom a request comes from, and how many unknown keys such a client may ask for."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.contracts.clock import ManualClock
from edge_api.client_address import MAX_ADDRESSES, UNKNOWN_BURST, UNKNOWN_PER_S, UnknownKeyLimit, client_address

TRUSTED = [ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("192.0.2.7/32")]


def test_without_trusted_proxies_nobody_is_believed() -> None:
    assert client_address("198.51.100.1", "203.0.113.7", []) == "198.51.100.1"


def test_a_stranger_is_not_believed() -> None:
    assert client_address("198.51.100.1", "203.0.113.7", TRUSTED) == "198.51.100.1"


@pytest.mark.parametrize(("peer", "forwarded_for", "client"), [
    ("10.0.0.1", "203.0.113.7", "203.0.113.7"),
    ("10.0.0.1", " 203.0.113.7 ", "203.0.113.7"),
    ("10.0.0.1", "203.0.113.7, 10.9.9.9", "203.0.113.7"),
    ("10.0.0.1", "8.8.8.8, 203.0.113.7, 192.0.2.7", "203.0.113.7"),
    ("10.0.0.1", "10.5.5.5", "10.5.5.5"),
    ("::ffff:10.0.0.1", "203.0.113.7", "203.0.113.7"),
    ("fd00::1", "2001:db8::5", "2001:db8::5"),
    ("10.0.0.1", "[2001:db8::5]:4711", "2001:db8::5"),
    ("10.0.0.1", "203.0.113.7:4711", "203.0.113.7"),
])
def test_trusted_proxies_say_who_asked_them(peer: str, forwarded_for: str, client: str) -> None:
    assert client_address(peer, forwarded_for, TRUSTED) == client


@pytest.mark.parametrize("forwarded_for", ["unknown", "", ",", "203.0.113.7, _hidden", "999.1.1.1", "a" * 10_000])
def test_what_is_no_address_ends_at_the_proxy_that_passed_it_on(forwarded_for: str) -> None:
    assert client_address("10.0.0.1", forwarded_for, TRUSTED) == "10.0.0.1"


def test_a_client_on_a_unix_socket_is_no_proxy() -> None:
    assert client_address("", "203.0.113.7", TRUSTED) == ""


@given(st.text(max_size=200))
def test_whatever_a_client_writes_it_cannot_choose_its_address(made_up: str) -> None:
    assert client_address("10.0.0.1", f"{made_up}, 203.0.113.7", TRUSTED) == "203.0.113.7"


def test_an_address_has_a_burst_and_then_a_rate() -> None:
    clock = ManualClock()
    limit = UnknownKeyLimit(clock)
    assert sum(limit.take("a") for _ in range(100)) == int(UNKNOWN_BURST)
    clock.advance(5)
    assert sum(limit.take("a") for _ in range(100)) == int(5 * UNKNOWN_PER_S)


def test_addresses_do_not_share_their_burst() -> None:
    limit = UnknownKeyLimit(ManualClock())
    for _ in range(100):
        limit.take("a")
    assert limit.take("b")


def test_what_is_given_back_never_exceeds_the_burst() -> None:
    limit = UnknownKeyLimit(ManualClock())
    for _ in range(100):
        limit.give_back("a")
    assert sum(limit.take("a") for _ in range(100)) == int(UNKNOWN_BURST)


def test_addresses_are_forgotten_beyond_a_bound() -> None:
    limit = UnknownKeyLimit(ManualClock())
    for address in range(MAX_ADDRESSES + 100):
        limit.take(str(address))
    assert len(limit._buckets) == MAX_ADDRESSES


def test_an_ipv6_network_is_one_client_and_its_neighbour_another() -> None:
    limit = UnknownKeyLimit(ManualClock())
    taken = [limit.take(f"2001:db8:0:1::{number:x}") for number in range(40)]
    assert sum(taken) == UNKNOWN_BURST
    assert limit.take("2001:db8:0:2::1")


def test_an_ipv4_address_counts_the_same_in_its_ipv6_form() -> None:
    limit = UnknownKeyLimit(ManualClock())
    while limit.take("192.0.2.1"):
        pass
    assert not limit.take("::ffff:192.0.2.1")
    assert limit.take("::ffff:192.0.2.2")
