"""What binds keys: rate limits, models and regions. Each change reaches every edge within 5 s."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from control_plane import paging
from control_plane.audit import service as audit
from control_plane.contracts import ids
from control_plane.contracts.operator import KeyView, Page, TeamView
from control_plane.contracts.tenancy import LimitRequest, LimitTarget, LimitView
from control_plane.errors import NotFound, Refusal
from control_plane.tenancy import repository
from control_plane.tenancy.changes import note_change
from control_plane.tenancy.models import ApiKey, KeyLimit, Team
from control_plane.tenancy.views import key_view, limit_view, team_view
from control_plane.topology import repository as topology
from control_plane.topology.models import Region

MAX_LIMITS = 100
MAX_SHOWN = 20


async def put_limit(session: AsyncSession, asked: LimitRequest, actor: str) -> LimitView:
    """Sets a limit, in the place of the one that bound the same before.

    Raises:
        NotFound: no such team, living key or model.
        Refusal: as many limits bind it as may.
    """
    team_id, key_id = await _bound(session, asked)
    await check_models(session, [asked.model] if asked.model else None)
    before = await repository.limits_of(session, team_id, key_id)
    former = next((limit_view(limit).model_dump() for limit in before if limit.model_id == asked.model), None)
    if former is None and len(before) >= MAX_LIMITS:
        raise Refusal(f"{key_id or team_id} has {len(before)} limits; at most {MAX_LIMITS}", code="too_many_limits")
    limit = limit_view(await repository.put_limit(session, {
        "id": ids.new_id("limit"), "team_id": team_id, "key_id": key_id, "model_id": asked.model,
        "requests_per_minute": asked.requests_per_minute, "tokens_per_minute": asked.tokens_per_minute,
        "concurrency": asked.concurrency}))
    audit.record(session, actor=actor, action="limit.set", target=_target(team_id, key_id),
                 before=former, after=limit.model_dump())
    await note_change(session, team_id)
    return limit


async def drop_limit(session: AsyncSession, asked: LimitTarget, actor: str) -> None:
    """Removes the limit that binds exactly this.

    Raises:
        NotFound: there is none, or no such team or key.
    """
    team_id, key_id = await _bound(session, asked)
    limit = await repository.drop_limit(session, team_id, key_id, asked.model)
    if limit is None:
        raise NotFound(f"{asked.key or asked.team} has no limit for {asked.model or 'all models together'}")
    audit.record(session, actor=actor, action="limit.remove", target=_target(team_id, key_id),
                 before=limit_view(limit).model_dump())
    await note_change(session, team_id)


async def limits(session: AsyncSession, asked: paging.Asked, team: str | None, key: str | None) -> Page[LimitView]:
    """A page of the limits: all, a team's with its keys', or one key's.

    Raises:
        NotFound: no such team.
    """
    team_id = (await _team(session, team)).id if team else None
    found = await repository.limits(session, asked.limit + 1, asked.cursor, team_id, key)
    return paging.page([limit_view(limit) for limit in found], asked, key=lambda limit: limit.id)


async def copy_limits(session: AsyncSession, key: ApiKey, successor: ApiKey) -> None:
    """Binds a key's successor as the key is bound."""
    for limit in await repository.limits_of(session, key.team_id, key.id):
        session.add(KeyLimit(
            id=ids.new_id("limit"), team_id=key.team_id, key_id=successor.id, model_id=limit.model_id,
            requests_per_minute=limit.requests_per_minute, tokens_per_minute=limit.tokens_per_minute,
            concurrency=limit.concurrency))


async def set_models(session: AsyncSession, key_id: str, models: list[str] | None, actor: str) -> KeyView:
    """Says which models a key may use; null: any.

    Raises:
        NotFound: no such living key, or no such model.
    """
    await check_models(session, models)
    key = await _living_key(session, key_id)
    _note(session, actor, "key.models", f"key:{key.id}", key.allowed_models, models)
    key.allowed_models = models
    await note_change(session, key.team_id)
    return key_view(key)


async def set_key_regions(session: AsyncSession, key_id: str, regions: list[str] | None, actor: str) -> KeyView:
    """Says which regions may serve a key; null: any that may serve its team.

    Raises:
        NotFound: no such living key, or no such region.
        Refusal: none of them may serve its team.
    """
    key = await _living_key(session, key_id)
    await check_regions(session, regions, within=(await _team(session, key.team_id)).regions)
    _note(session, actor, "key.regions", f"key:{key.id}", key.regions, regions)
    key.regions = regions
    await note_change(session, key.team_id)
    return key_view(key)


async def set_team_regions(session: AsyncSession, team: str, regions: list[str] | None, actor: str) -> TeamView:
    """Says which regions may serve a team; null: any.

    Raises:
        NotFound: no such team, or no such region.
    """
    found = await _team(session, team)
    await check_regions(session, regions, within=None)
    _note(session, actor, "team.regions", f"team:{found.id}", found.regions, regions)
    found.regions = regions
    await session.flush()
    await note_change(session, found.id)
    return team_view(found)


async def check_models(session: AsyncSession, models: Sequence[str] | None) -> None:
    """Raises NotFound for a model that nobody declared: a typo would shut a key out of everything."""
    if models:
        _check_known("model", models, await topology.models(session, models))


async def check_regions(session: AsyncSession, regions: Sequence[str] | None, within: Sequence[str] | None) -> None:
    """Raises NotFound for a region that nobody declared, and Refusal if none of them is `within` those of the team."""
    if not regions:
        return
    _check_known("region", regions, await topology.every(session, Region))
    if within is not None and not set(regions) & set(within):
        raise Refusal(f"the team may be served in {', '.join(within[:MAX_SHOWN])} only", code="no_region_left")


def _check_known(noun: str, wanted: Sequence[str], known: Collection[str]) -> None:
    missing = [name for name in wanted if name not in known]
    if missing:
        raise NotFound(f"there is no {noun} {missing[0]!r}", code=f"unknown_{noun}")


async def _bound(session: AsyncSession, target: LimitTarget) -> tuple[str, str | None]:
    """Team and key that a limit binds; its key is null when it binds the team."""
    if target.key is not None:
        key = await _living_key(session, target.key)
        return key.team_id, key.id
    return (await _team(session, target.team or "")).id, None


async def _living_key(session: AsyncSession, key_id: str) -> ApiKey:
    key = await repository.lock_living_key(session, key_id)
    if key is None:
        raise NotFound(f"there is no living key {key_id!r}")
    return key


async def _team(session: AsyncSession, id_or_slug: str) -> Team:
    team = await repository.team(session, id_or_slug)
    if team is None:
        raise NotFound(f"there is no team {id_or_slug!r}")
    return team


def _target(team_id: str, key_id: str | None) -> str:
    return f"key:{key_id}" if key_id else f"team:{team_id}"


def _note(session: AsyncSession, actor: str, action: str, target: str, before: Any, after: Any) -> None:
    name = action.rpartition(".")[2]
    audit.record(session, actor=actor, action=action, target=target, before={name: before}, after={name: after})
