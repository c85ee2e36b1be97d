"""What operators order, at random: operations of every kind that there is, cancels, repeats, freezes."""

import asyncio
from random import Random
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from control_plane.contracts.operations import (
    OF_A_DATACENTER,
    FreezeRequest,
    OperationKind,
    OperationRequest,
    RolloutOrder,
    ShiftOrder,
    StepState,
    UnfreezeRequest,
)
from control_plane.contracts.recovery import RecoveryRequest
from control_plane.errors import Refusal
from control_plane.operations import freezing, service, steering
from control_plane.operations.machine import OPEN_OPERATIONS
from control_plane.operations.playbooks import PLAYBOOKS
from control_plane.routing import recovery
from tests.simulation.database import Away
from tests.simulation.replicas import Replica

if TYPE_CHECKING:
    from tests.simulation.world import World

DEADLINES_S = (4.0, 10.0, 20.0)


async def act(world: "World", number: int) -> None:
    """One operator, who orders something every few seconds of whichever replica answers."""
    chance, name = world.draw(f"operator {number}"), f"operator:{number}"
    while True:
        await asyncio.sleep(chance.expovariate(0.35))
        replica = chance.choice(world.places).process
        if replica is None or not replica.alive:
            continue
        try:
            lot = chance.random()
            act_now = _steer if lot < 0.25 else _freeze if lot < 0.32 else _order
            await act_now(world, replica, chance, name)
        except (Refusal, Away) as refusal:
            world.story.note(f"is told no: {refusal}"[:160], name)
            _note_refusal(world, refusal)
        except DBAPIError as error:
            world.story.violate("no unexpected error", f"{name}: {error}")


async def recover(world: "World") -> None:
    """The operator who restored the database begins a new lineage, as soon as a replica lets him."""
    while True:
        replica = world.places[0].process
        if replica is not None and replica.alive:
            try:
                async with replica.db.begin() as session:
                    found = await recovery.recover(
                        session, replica.key, RecoveryRequest(reason="simulated", force=True), "operator:0")
            except (Away, Refusal) as refusal:
                world.story.note(f"is told no: {refusal}", "operator:0")
            else:
                world.story.note(f"began lineage {found.lineage}", "operator:0")
                world.story.reach("a new lineage began")
                return
        await asyncio.sleep(1.0)


def request(world: "World", chance: Random) -> OperationRequest | None:
    """Something to order; nothing if its kind cannot be ordered here."""
    kind = chance.choice(sorted(PLAYBOOKS))
    places = sorted(world.engines)
    common = {"reason": "simulated", "deadline_s": chance.choice(DEADLINES_S), "force": chance.random() < 0.1}
    if kind in OF_A_DATACENTER:
        return OperationRequest(kind=kind, datacenter=chance.choice(places), **common)  # type: ignore[arg-type]
    model = chance.choice(world.models)
    if kind is OperationKind.SHIFT:
        source, target = chance.sample(places, k=2)
        return OperationRequest(kind=kind, shift=ShiftOrder(
            model=model, source=source, target=target, percent=chance.choice((10, 50, 100)),
            step_percent=chance.choice((10, 50)), interval_s=1.0), **common)  # type: ignore[arg-type]
    common["deadline_s"] = 60.0
    return OperationRequest(kind=kind, rollout=RolloutOrder(
        model=model, engine={"image": f"image-{chance.randrange(1_000)}"}, watch_s=1.0), **common)  # type: ignore[arg-type]


async def _order(world: "World", replica: Replica, chance: Random, name: str) -> None:
    asked = request(world, chance)
    if asked is None:
        return
    key = f"key-{chance.randrange(1_000_000)}" if chance.random() < 0.5 else None
    subject = asked.datacenter or (asked.shift or asked.rollout).model  # type: ignore[union-attr]
    forced = "forced " if asked.force else ""
    world.story.note(f"asks {replica.name} for a {forced}{asked.kind.value} of {subject}", name)
    for _ in range(2 if chance.random() < 0.3 else 1):
        async with replica.db.begin() as session:
            outcome = await service.create(session, asked, name, key)
        if outcome.operation is not None and not outcome.is_new:
            world.story.reach("asking twice made one operation")
        if outcome.refusal is not None:
            raise outcome.refusal


async def _steer(world: "World", replica: Replica, chance: Random, name: str) -> None:
    """Cancels, pauses, resumes or rolls back something that is under way."""
    under_way = sorted(row.id for row in world.tables.table("operation").values() if row.state in OPEN_OPERATIONS)
    if not under_way:
        return
    chosen = chance.choice(under_way)
    row = world.tables.table("operation")[chosen]
    running = [step.name for step in world.tables.table("operation_step").values()
               if step.operation_id == chosen and step.state is StepState.RUNNING]
    verb = chance.choice(("cancel", "cancel", "pause", "resume", "resume", "rollback"))
    world.story.note(f"asks {replica.name} to {verb} the {row.kind.value} of {row.subject}", name)
    async with replica.db.begin() as session:
        if verb == "pause":
            await steering.pause(session, chosen, name)
        elif verb == "resume":
            await steering.resume(session, chosen, name)
        elif verb == "cancel":
            await steering.cancel(session, replica.key, chosen, name)
        else:
            await steering.rollback(session, replica.key, chosen, name)
    world.story.reach(f"an operator's {verb}")
    for step in running if verb == "cancel" else ():
        world.story.reach(f"{row.kind.value} cancelled in {step.value}")


async def _freeze(world: "World", replica: Replica, chance: Random, name: str) -> None:
    is_frozen = world.tables.table("automation")[True].frozen
    world.story.note("ends the freeze" if is_frozen else "freezes automation", name)
    async with replica.db.begin() as session:
        if is_frozen:
            await freezing.unfreeze(session, UnfreezeRequest(reason="simulated"), name)
        else:
            await freezing.freeze(session, FreezeRequest(reason="simulated", ttl_s=chance.choice((3.0, 20.0))), name)


def _note_refusal(world: "World", refusal: Exception) -> None:
    rule = getattr(refusal, "rule", None)
    code = getattr(refusal, "code", None)
    if rule:
        world.story.reach(f"refused by rule {rule}")
    elif code:
        world.story.reach(f"refused: {code}")
