"""Evidence: short at first, longer while an outage lasts, forgotten when it is over; never a request's own fault."""

import pytest

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.snapshot import TrafficState
from edge_api.routing.health import (
    AILING,
    DEFAULT_COOL_DOWN_S,
    FIRST_EJECTION_S,
    FIRST_FALTER_S,
    LONGEST_COOL_DOWN_S,
    LONGEST_EJECTION_S,
    LONGEST_FALTER_S,
    MIN_ERRORS,
    RAMP_S,
    SHORTEST_COOL_DOWN_S,
    TRIAL_S,
    WINDOW_S,
    Health,
)
from edge_api.routing.table import Route

LEAST_JITTER, MOST_JITTER = 0.79, 1.21
EARLY, LATE = 0.0, 0.999


def route(datacenter_id: str = "us-east-1", deployment: str = "glm", port: int = 9000) -> Route:
    return Route(datacenter_id, datacenter_id, TrafficState.ACTIVE, 100, "127.0.0.1", port, False,
                 f"{datacenter_id}-{deployment}")


HERE, THERE = route(), route("eu-north-1", port=9001)
DC = HERE.datacenter_id


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> Health:
    return Health(clock)


def is_away(health: Health, place: Route = HERE) -> bool:
    return health.is_away(place, LATE)


def errs(health: Health, times: int, open_requests: int = 0, place: Route = HERE) -> list[bool]:
    return [health.erred(place, open_requests) for _ in range(times)]


class TestConnections:
    def test_a_datacenter_without_history_is_there(self, health: Health) -> None:
        assert not is_away(health)
        assert not health.has_faults

    def test_one_failure_ejects_for_a_second(self, health: Health, clock: ManualClock) -> None:
        assert health.failed(DC)
        clock.advance(FIRST_EJECTION_S - 0.01)
        assert is_away(health)
        clock.advance(0.01)
        assert not is_away(health)

    def test_a_failure_says_nothing_about_other_datacenters(self, health: Health) -> None:
        health.failed(DC)
        assert not is_away(health, THERE)

    def test_it_speaks_for_all_deployments_there(self, health: Health) -> None:
        health.failed(DC)
        assert is_away(health, route(deployment="qwen"))

    def test_ejections_double_up_to_the_longest(self, health: Health, clock: ManualClock) -> None:
        lengths = []
        for _ in range(8):
            health.failed(DC)
            started_s = clock.monotonic_s()
            while is_away(health):
                clock.advance(0.5)
            lengths.append(clock.monotonic_s() - started_s)
        assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
        assert lengths[-1] == LONGEST_EJECTION_S

    def test_many_failures_at_once_are_one_outage(self, health: Health, clock: ManualClock) -> None:
        assert [health.failed(DC) for _ in range(50)] == [True] + 49 * [False]
        clock.advance(FIRST_EJECTION_S)
        assert not is_away(health)

    def test_a_success_forgets_the_outage(self, health: Health, clock: ManualClock) -> None:
        for _ in range(5):
            health.failed(DC)
            clock.advance(LONGEST_EJECTION_S)
        health.succeeded(DC)
        assert not health.has_faults
        health.failed(DC)
        clock.advance(FIRST_EJECTION_S)
        assert not is_away(health)

    def test_a_success_during_an_ejection_ends_it(self, health: Health) -> None:
        health.failed(DC)
        health.succeeded(DC)
        assert not is_away(health)

    def test_while_one_request_tries_it_the_others_stay_away(self, health: Health, clock: ManualClock) -> None:
        health.failed(DC)
        clock.advance(FIRST_EJECTION_S)
        health.chosen(HERE)
        assert is_away(health)

    def test_a_trial_that_nobody_reports_does_not_last_for_ever(self, health: Health, clock: ManualClock) -> None:
        health.failed(DC)
        clock.advance(FIRST_EJECTION_S)
        health.chosen(HERE)
        clock.advance(TRIAL_S)
        assert not is_away(health)

    def test_a_trial_that_fails_ejects_for_longer(self, health: Health, clock: ManualClock) -> None:
        health.failed(DC)
        clock.advance(FIRST_EJECTION_S)
        health.chosen(HERE)
        assert health.failed(DC)
        clock.advance(2 * FIRST_EJECTION_S - 0.01)
        assert is_away(health)

    def test_a_choice_of_a_healthy_datacenter_changes_nothing(self, health: Health) -> None:
        health.chosen(HERE)
        assert not is_away(health)


class TestErrors:
    def test_errors_of_all_requests_eject_once_there_are_enough(self, health: Health) -> None:
        assert errs(health, MIN_ERRORS) == (MIN_ERRORS - 1) * [False] + [True]
        assert health.is_faltering(HERE)

    def test_what_falters_is_not_away(self, health: Health) -> None:
        errs(health, MIN_ERRORS)
        assert not is_away(health)

    def test_errors_of_few_among_many_do_not(self, health: Health) -> None:
        assert not any(errs(health, 2 * MIN_ERRORS, open_requests=100))
        assert not health.is_faltering(HERE)

    def test_requests_sent_since_the_first_error_count(self, health: Health) -> None:
        health.erred(HERE, 0)
        for _ in range(100):
            health.chosen(HERE)
        assert not any(errs(health, 2 * MIN_ERRORS))

    def test_half_of_many_do(self, health: Health) -> None:
        assert errs(health, 50, open_requests=100)[-1]

    def test_errors_that_come_slowly_do_not_add_up(self, health: Health, clock: ManualClock) -> None:
        for _ in range(5 * MIN_ERRORS):
            health.erred(HERE, 0)
            clock.advance(WINDOW_S / (MIN_ERRORS - 1))
        assert not health.is_faltering(HERE)

    def test_they_speak_for_one_deployment_alone(self, health: Health) -> None:
        errs(health, MIN_ERRORS)
        assert not health.is_faltering(route(deployment="qwen"))

    def test_ejections_double_up_to_the_longest(self, health: Health, clock: ManualClock) -> None:
        errs(health, MIN_ERRORS)
        lengths = []
        for _ in range(6):
            started_s = clock.monotonic_s()
            while health.is_faltering(HERE):
                clock.advance(0.5)
            lengths.append(clock.monotonic_s() - started_s)
            health.erred(HERE, 0)
        assert lengths == [FIRST_FALTER_S, 10.0, 20.0, 40.0, LONGEST_FALTER_S, LONGEST_FALTER_S]

    def test_one_request_at_a_time_tries_it_afterwards(self, health: Health, clock: ManualClock) -> None:
        errs(health, MIN_ERRORS)
        clock.advance(FIRST_FALTER_S)
        assert not health.is_faltering(HERE)
        health.chosen(HERE)
        assert health.is_faltering(HERE)
        clock.advance(TRIAL_S)
        assert not health.is_faltering(HERE)

    def test_a_quiet_while_after_the_ejection_forgets_it(self, health: Health, clock: ManualClock) -> None:
        errs(health, MIN_ERRORS)
        clock.advance(FIRST_FALTER_S + WINDOW_S)
        assert not health.is_faltering(HERE)
        assert not health.has_faults
        assert not any(errs(health, MIN_ERRORS - 1))

    def test_an_old_window_is_forgotten_by_the_next_request(self, health: Health, clock: ManualClock) -> None:
        health.erred(HERE, 0)
        clock.advance(WINDOW_S)
        health.chosen(HERE)
        assert not health.has_faults


class TestOverload:
    @pytest.mark.parametrize(("asked_s", "waits_s"), [
        (None, DEFAULT_COOL_DOWN_S), (1.0, 1.0), (0.0, SHORTEST_COOL_DOWN_S), (-5.0, SHORTEST_COOL_DOWN_S),
        (86_400.0, LONGEST_COOL_DOWN_S), (float("inf"), LONGEST_COOL_DOWN_S)])
    def test_it_is_left_alone_as_long_as_it_asks_within_bounds(
            self, health: Health, clock: ManualClock, asked_s: float | None, waits_s: float) -> None:
        health.overloaded(HERE, asked_s)
        clock.advance(waits_s * LEAST_JITTER)
        assert health.is_faltering(HERE)
        clock.advance(waits_s * (MOST_JITTER - LEAST_JITTER))
        assert not health.is_faltering(HERE)
        assert not health.has_faults

    def test_it_is_no_failure(self, health: Health, clock: ManualClock) -> None:
        for _ in range(100):
            health.overloaded(HERE, 1.0)
        assert not is_away(health)
        clock.advance(MOST_JITTER)
        assert not health.is_faltering(HERE)

    def test_a_short_wish_does_not_end_a_longer_one(self, health: Health, clock: ManualClock) -> None:
        health.overloaded(HERE, 10.0)
        health.overloaded(HERE, 1.0)
        clock.advance(2.0)
        assert health.is_faltering(HERE)

    def test_it_speaks_for_one_deployment_alone(self, health: Health) -> None:
        health.overloaded(HERE, 10.0)
        assert not health.is_faltering(route(deployment="qwen"))


class TestProbes:
    def test_a_lost_frontend_is_away_until_it_recovers(self, health: Health, clock: ManualClock) -> None:
        health.lost(HERE.address)
        clock.advance(10_000)
        assert is_away(health)
        assert not is_away(health, THERE)

    def test_another_fleet_of_its_datacenter_is_not(self, health: Health) -> None:
        health.lost(HERE.address)
        assert not is_away(health, route(port=9100))

    def test_sessions_come_back_one_after_the_other(self, health: Health, clock: ManualClock) -> None:
        health.lost(HERE.address)
        health.recovered(HERE.address, DC)
        spreads, back = [n / 100 for n in range(100)], []
        for _ in range(11):
            back.append(sum(not health.is_away(HERE, spread) for spread in spreads))
            clock.advance(RAMP_S / 10)
        assert back == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        assert not health.has_faults

    def test_a_session_that_is_back_stays(self, health: Health, clock: ManualClock) -> None:
        health.lost(HERE.address)
        health.recovered(HERE.address, DC)
        seen = []
        for _ in range(100):
            seen.append(health.is_away(HERE, 0.5))
            clock.advance(RAMP_S / 50)
        assert seen == sorted(seen, reverse=True)

    def test_recovery_ends_what_requests_said_of_the_outage(self, health: Health, clock: ManualClock) -> None:
        for _ in range(6):
            health.failed(DC)
            clock.advance(LONGEST_EJECTION_S)
        health.failed(DC)
        health.lost(HERE.address)
        health.recovered(HERE.address, DC)
        clock.advance(RAMP_S)
        assert not is_away(health)

    def test_a_frontend_that_is_lost_again_is_away_at_once(self, health: Health, clock: ManualClock) -> None:
        health.lost(HERE.address)
        health.recovered(HERE.address, DC)
        clock.advance(RAMP_S / 2)
        health.lost(HERE.address)
        assert health.is_away(HERE, EARLY)

    def test_a_frontend_that_left_the_table_is_forgotten(self, health: Health) -> None:
        health.lost(HERE.address)
        health.rtt_ms[HERE.address] = 5.0
        health.forget(HERE.address)
        assert not health.has_faults
        assert health.rtt_ms == {}


class TestPlain500s:
    def test_the_first_ones_may_be_the_requests_own(self, health: Health) -> None:
        health.succeeded(DC)
        assert [health.broke(DC) for _ in range(AILING + 1)] == AILING * [False] + [True]

    def test_of_a_datacenter_that_never_served_they_are_not_the_requests(self, health: Health) -> None:
        assert health.broke(DC)

    def test_between_others_that_are_served_they_always_are(self, health: Health) -> None:
        for _ in range(2 * AILING):
            health.succeeded(DC)
            assert not health.broke(DC)

    def test_after_a_failure_of_another_kind_they_are_the_datacenters(self, health: Health) -> None:
        for fails in (lambda: health.failed(DC), lambda: health.erred(HERE, 1), lambda: health.overloaded(HERE, None)):
            fails()
            assert health.broke(DC)
            health.succeeded(DC)
            assert not health.broke(DC)
            health.succeeded(DC)

    def test_those_of_another_datacenter_say_nothing(self, health: Health) -> None:
        health.succeeded(THERE.datacenter_id)
        health.failed(DC)
        assert not health.broke(THERE.datacenter_id)

    def test_they_alone_keep_nobody_away(self, health: Health) -> None:
        for _ in range(AILING):
            health.broke(DC)
        assert not is_away(health)
        assert not health.has_faults
