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
