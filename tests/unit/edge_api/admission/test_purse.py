"""A purse never reserves and spends more than was leased, whatever happens in whatever order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from control_plane.contracts.keys import LimitScope
from edge_api.admission.purse import LeaseState, Part, Purse
from edge_api.metering.frames import Position

Parts = tuple[Part, ...]
AMOUNT = st.integers(0, 1_000)


def purse_with(*granted_nusd: int) -> Purse:
    purse = Purse(LimitScope.TEAM, "team_1", 0.0)
    for at, amount in enumerate(granted_nusd):
        purse.add(f"lease_{at}", amount)
    return purse


def reserved(purse: Purse, amount_nusd: int) -> Parts:
    parts = purse.reserve(amount_nusd)
    assert parts is not None
    return parts




def test_what_is_not_there_is_not_reserved() -> None:
    purse = purse_with(100)
    assert purse.reserve(101) is None
    assert purse.free_nusd == 100


def test_a_reservation_may_be_cut_out_of_several_leases() -> None:
    purse = purse_with(60, 60)
    parts = reserved(purse, 100)
    assert [part.amount_nusd for part in parts] == [60, 40]
    assert purse.free_nusd == 20


def test_what_was_not_spent_is_free_again() -> None:
    purse = purse_with(100)
    parts = reserved(purse, 80)
    assert purse.settle(parts, 30, 0.0, Position(1, 5)) == 0
    purse.end(parts)
    assert purse.free_nusd == 70


def test_what_was_never_settled_was_not_spent() -> None:
    purse = purse_with(100)
    purse.end(reserved(purse, 80))
    assert purse.free_nusd == 100


def test_a_cost_beyond_its_reservation_is_taken_from_what_is_free() -> None:
    purse = purse_with(100)
    parts = reserved(purse, 10)
    assert purse.settle(parts, 40, 0.0, Position(1, 5)) == 0
    purse.end(parts)
    assert purse.free_nusd == 60


def test_a_cost_beyond_the_lease_is_told() -> None:
    purse = purse_with(100)
    parts = reserved(purse, 90)
    assert purse.settle(parts, 250, 0.0, Position(1, 5)) == 150
    purse.end(parts)
    assert purse.free_nusd == 0


def test_a_used_up_lease_retires() -> None:
    purse = purse_with(100)
    parts = reserved(purse, 100)
    purse.settle(parts, 100, 0.0, Position(1, 5))
    purse.end(parts)
    assert purse.retire(is_all=False)
    assert purse.is_about_to_close()


def test_a_lease_with_money_left_does_not_retire_by_itself() -> None:
    purse = purse_with(100)
    assert not purse.retire(is_all=False)
    assert purse.retire(is_all=True)
    assert purse.free_nusd == 0


def test_a_lease_with_an_open_reservation_does_not_retire() -> None:
    purse = purse_with(100)
    reserved(purse, 100)
    assert not purse.retire(is_all=True)


def test_a_lease_is_closable_once_its_last_record_is_shipped() -> None:
    purse = purse_with(100)
    parts = reserved(purse, 100)
    purse.settle(parts, 100, 0.0, Position(2, 500))
    purse.end(parts)
    purse.retire(is_all=False)
    assert list(purse.closable(Position(2, 499))) == []
    assert [lease.lease_id for lease in purse.closable(Position(2, 500))] == ["lease_0"]


def test_a_closed_lease_is_forgotten() -> None:
    purse = purse_with(100, 50)
    purse.retire(is_all=True)
    purse.close(lambda lease: lease.lease_id == "lease_0")
    assert purse.leased_nusd == 50


def test_recent_spending_fades() -> None:
    purse = purse_with(10**9)
    for second in range(600):
        parts = reserved(purse, 1_000)
        purse.settle(parts, 1_000, float(second), Position(1, second))
        purse.end(parts)
    assert 550_000 < purse.recent(600.0) < 650_000
    assert purse.recent(6_000.0) < 100


def test_a_young_purse_takes_what_it_saw_for_a_part_of_ten_minutes() -> None:
    purse = purse_with(10**9)
    for second in range(20):
        parts = reserved(purse, 1_000)
        purse.settle(parts, 1_000, float(second), Position(1, second))
        purse.end(parts)
    assert 550_000 < purse.recent(20.0) < 650_000


def test_one_payment_of_a_new_purse_is_not_taken_for_one_in_each_moment() -> None:
    purse = purse_with(10**9)
    parts = reserved(purse, 1_000)
    purse.settle(parts, 1_000, 0.0, Position(1, 1))
    assert purse.recent(0.0) < 65_000


class PurseMachine(RuleBasedStateMachine):
    """Leases come and go, requests reserve, settle to more or less, and end, in any order."""

    reservations: Bundle[tuple[Parts, int]] = Bundle("reservations")

    def __init__(self) -> None:
        super().__init__()
        self.purse = Purse(LimitScope.TEAM, "team_1", 0.0)
        self.leased = self.spent = self.overrun = self.count = 0
        self.open: list[Parts] = []
        self.closed_spent = 0
        self.written, self.shipped = 0, 0

    @rule(granted=st.integers(1, 2_000))
    def lease(self, granted: int) -> None:
        self.count += 1
        self.purse.add(f"lease_{self.count}", granted)
        self.leased += granted

    @rule(target=reservations, amount=AMOUNT)
    def reserve(self, amount: int) -> tuple[Parts, int]:
        free = self.purse.free_nusd
        parts = self.purse.reserve(amount)
        assert (parts is None) == (amount > free)
        if parts is None:
            return (), 0
        self.open.append(parts)
        return parts, amount

    @rule(reservation=consumes(reservations), cost=AMOUNT)
    def settle(self, reservation: tuple[Parts, int], cost: int) -> None:
        parts, _ = reservation
        self.written += 1
        self.overrun += self.purse.settle(parts, cost, 0.0, Position(1, self.written))
        self.spent += cost
        self.purse.end(parts)

    @rule(reservation=consumes(reservations))
    def give_up(self, reservation: tuple[Parts, int]) -> None:
        self.purse.end(reservation[0])

    @rule(is_all=st.booleans())
    def retire(self, is_all: bool) -> None:
        self.purse.retire(is_all)

    @rule()
    def ship(self) -> None:
        self.shipped = self.written

    @rule()
    def close(self) -> None:
        due = list(self.purse.closable(Position(1, self.shipped)))
        for lease in due:
            assert lease.reservations == lease.reserved_nusd == 0
            self.closed_spent += lease.spent_nusd
            self.leased -= lease.granted_nusd
        self.purse.close(due.__contains__)

    @invariant()
    def every_lease_is_accounted_for(self) -> None:
        for lease in self.purse.leases:
            assert lease.granted_nusd == lease.free_nusd + lease.reserved_nusd + lease.spent_nusd
            assert min(lease.free_nusd, lease.reserved_nusd, lease.spent_nusd, lease.reservations) >= 0

    @invariant()
    def what_is_settled_and_reserved_was_leased(self) -> None:
        spent = sum(lease.spent_nusd for lease in self.purse.leases)
        assert spent + sum(lease.reserved_nusd for lease in self.purse.leases) <= self.leased
        assert spent + self.closed_spent + self.overrun == self.spent

    @invariant()
    def what_is_free_is_that_of_the_open_leases(self) -> None:
        assert self.purse.free_nusd == sum(
            lease.free_nusd for lease in self.purse.leases if lease.state is LeaseState.OPEN)


PurseMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPurseMachine = PurseMachine.TestCase
