"""The orders of an edge: kept on disk, in force until they end, reported once."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.override import OverrideOutcome, OverrideStanding, SignedOverride
from control_plane.contracts.signing import SigningKey
from edge_api.override.board import Overrides
from edge_api.override.store import OrderStore
from edge_api.snapshot.holder import TableHolder
from tests.unit.edge_api.builders import MODEL
from tests.unit.edge_api.override.orders import EAST, EDGE, NORTH, NOW_S, known_to, lift, order, sealed


class Edge:
    """An edge's orders over a state directory; `restart` is another process over the same one."""

    def __init__(self, path: Path, key: SigningKey) -> None:
        self._path, self.key, self.clock = path, key, ManualClock(NOW_S)
        self.restart()

    def restart(self) -> None:
        self.holder, self.registry = TableHolder(), CollectorRegistry()
        self.holder.take(known_to(self.key))
        self.overrides = Overrides(self.holder, OrderStore(self._path), self.clock, self.registry, lambda: EDGE)
        self.overrides.restore()

    async def give(self, **changes: Any) -> OverrideOutcome:
        return (await self.overrides.take(sealed(self.key, **changes))).outcome

    async def lift(self, **changes: Any) -> OverrideOutcome:
        return (await self.overrides.take(SignedOverride.seal(lift(**changes), self.key))).outcome

    def tick(self) -> None:
        """What the background task does twice a second."""
        if self.overrides._counting != self.overrides._in_time(self.holder.snapshot):
            self.holder.rebuild()

    def states(self) -> list[OverrideStanding]:
        return [view.state for view in self.overrides.views()]

    @property
    def weights(self) -> dict[str, float]:
        table = self.holder.current
        assert table is not None
        return {route.datacenter_id: route.weight for route in table.models[MODEL].routes}


@pytest.fixture
def edge(tmp_path: Path) -> Edge:
    return Edge(tmp_path / "overrides.json", SigningKey.generate())


async def test_an_order_is_obeyed_at_once(edge: Edge) -> None:
    assert await edge.give() is OverrideOutcome.TAKEN
    assert edge.weights == {EAST: 0, NORTH: 100}


async def test_it_beats_every_later_snapshot(edge: Edge) -> None:
    await edge.give()
    edge.holder.take(known_to(edge.key, version=2))
    assert edge.weights[EAST] == 0


async def test_it_ends_by_itself(edge: Edge) -> None:
    await edge.give(ttl_s=60.0)
    edge.clock.advance(60)
    edge.tick()
    assert (edge.weights[EAST], edge.states()) == (100, [OverrideStanding.EXPIRED])


async def test_a_wall_clock_that_is_set_back_does_not_prolong_it(edge: Edge) -> None:
    await edge.give(ttl_s=60.0)
    edge.clock.advance(61)
    edge.clock._time_s -= 3_600
    edge.tick()
    assert edge.weights[EAST] == 100


async def test_nor_does_a_restart_with_the_clock_set_back_prolong_it_beyond_its_own_length(edge: Edge) -> None:
    await edge.give(ttl_s=60.0)
    edge.clock._time_s -= 3_600
    edge.restart()
    edge.clock.advance(60)
    edge.tick()
    assert edge.weights[EAST] == 100


async def test_a_restarted_edge_obeys_it_still(edge: Edge) -> None:
    await edge.give()
    edge.restart()
    assert edge.weights[EAST] == 0


async def test_a_restarted_edge_forgets_no_lift(edge: Edge) -> None:
    await edge.give()
    edge.clock.advance(1)
    await edge.lift()
    edge.restart()
    assert edge.weights[EAST] == 100
    assert await edge.give() is OverrideOutcome.LIFTED
    assert await edge.give(order_id="ovr_2") is OverrideOutcome.LIFTED
    assert edge.weights[EAST] == 100


async def test_a_lift_gives_the_datacenter_back(edge: Edge) -> None:
    await edge.give()
    edge.clock.advance(1)
    assert await edge.lift() is OverrideOutcome.TAKEN
    assert (edge.weights[EAST], edge.states()) == (100, [OverrideStanding.LIFTED, OverrideStanding.IN_FORCE])


async def test_an_order_by_a_stranger_is_not_believed(edge: Edge) -> None:
    answer = await edge.overrides.take(sealed(SigningKey.generate()))
    assert (answer.outcome, edge.weights[EAST]) == (OverrideOutcome.NOT_BELIEVED, 100)


async def test_an_order_that_was_changed_on_the_way_is_not_believed(edge: Edge) -> None:
    signed = sealed(edge.key)
    answer = await edge.overrides.take(signed.model_copy(update={"body": signed.body.replace(EAST, NORTH)}))
    assert answer.outcome is OverrideOutcome.NOT_BELIEVED


async def test_a_signature_for_another_purpose_is_not_believed(edge: Edge) -> None:
    body = order().model_dump_json()
    signed = SignedOverride.sealed("meridian-other-v1", order(), edge.key)
    assert signed.body == body
    assert (await edge.overrides.take(signed)).outcome is OverrideOutcome.NOT_BELIEVED


async def test_a_key_that_is_revoked_takes_its_orders_with_it(edge: Edge) -> None:
    await edge.give()
    edge.holder.take(known_to(None, version=2))
    assert (edge.weights[EAST], edge.states()) == (100, [OverrideStanding.UNPROVED])


async def test_orders_on_a_disk_that_somebody_changed_are_not_obeyed(edge: Edge, tmp_path: Path) -> None:
    await edge.give()
    path = tmp_path / "overrides.json"
    path.write_text(path.read_text().replace(EAST, NORTH))
    edge.restart()
    assert (edge.weights, edge.states()) == ({EAST: 100, NORTH: 100}, [OverrideStanding.UNPROVED])


async def test_a_damaged_file_is_no_order(edge: Edge, tmp_path: Path) -> None:
    await edge.give()
    (tmp_path / "overrides.json").write_text("{")
    edge.restart()
    assert edge.weights[EAST] == 100


async def test_an_order_that_the_next_snapshot_makes_the_last_one_is_suspended_and_comes_back(edge: Edge) -> None:
    await edge.give()
    edge.holder.take(known_to(edge.key, {EAST: 100, NORTH: 0}, version=2))
    assert (edge.weights[EAST], edge.states()) == (100, [OverrideStanding.SUSPENDED])
    edge.holder.take(known_to(edge.key, version=3))
    assert (edge.weights[EAST], edge.states()) == (0, [OverrideStanding.IN_FORCE])


async def test_an_edge_without_a_snapshot_is_not_ready(tmp_path: Path) -> None:
    holder = TableHolder()
    overrides = Overrides(holder, OrderStore(tmp_path / "o"), ManualClock(NOW_S), CollectorRegistry(), lambda: EDGE)
    assert (await overrides.take(sealed(SigningKey.generate()))).outcome is OverrideOutcome.NOT_READY


async def test_an_order_that_cannot_be_kept_is_not_obeyed(edge: Edge, tmp_path: Path) -> None:
    (tmp_path / "overrides.json").mkdir()
    with pytest.raises(OSError, match="overrides"):
        await edge.give()
    assert (edge.weights[EAST], edge.states()) == (100, [])


async def test_what_is_in_force_is_reported_as_long_as_it_is(edge: Edge) -> None:
    await edge.give(ttl_s=60.0)
    await edge.overrides.reported(["ovr_1"])
    assert [report.view.state for report in edge.overrides.reports()] == [OverrideStanding.IN_FORCE]
    edge.clock.advance(60)
    assert edge.overrides.reports() == []


async def test_what_ended_unreported_is_reported_and_then_forgotten(edge: Edge) -> None:
    await edge.give(ttl_s=60.0)
    edge.clock.advance(61)
    edge.restart()
    assert [report.view.state for report in edge.overrides.reports()] == [OverrideStanding.EXPIRED]
    await edge.overrides.reported(["ovr_1"])
    edge.restart()
    assert edge.overrides.views() == []


async def test_a_lift_is_kept_until_nothing_that_it_took_back_can_come_again(edge: Edge) -> None:
    await edge.lift()
    await edge.overrides.reported(["ovr_lift"])
    edge.clock.advance(3_500)
    edge.restart()
    assert await edge.give() is OverrideOutcome.LIFTED
    edge.clock.advance(86_400)
    await edge.overrides.reported(["ovr_lift"])
    assert edge.overrides.views() == []


async def test_figures_say_how_many_are_in_force_and_what_became_of_each(edge: Edge) -> None:
    await edge.give()
    await edge.give()
    assert edge.registry.get_sample_value("meridian_edge_overrides_in_force") == 1
    assert edge.registry.get_sample_value("meridian_edge_override_orders_total", {"outcome": "known"}) == 1
