"""How many unknown keys a client address may ask for."""



from control_plane.contracts.clock import ManualClock
from edge_api.auth import MAX_ADDRESSES, UNKNOWN_BURST, UNKNOWN_PER_S, UnknownKeyLimit


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
