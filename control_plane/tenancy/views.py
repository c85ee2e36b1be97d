"""Rows of the tenancy slice as operators see them."""

from control_plane.contracts.keys import Scope
from control_plane.contracts.operator import KeyView, TeamView
from control_plane.contracts.tenancy import LimitView
from control_plane.tenancy.models import ApiKey, KeyLimit, Team


def team_view(team: Team) -> TeamView:
    return TeamView(id=team.id, slug=team.slug, name=team.name, created_at=team.created_at, regions=team.regions)


def key_view(key: ApiKey) -> KeyView:
    return KeyView(
        id=key.id, team_id=key.team_id, name=key.name, hint=key.hint, scopes=[Scope(scope) for scope in key.scopes],
        created_at=key.created_at, expires_at=key.expires_at, revoked_at=key.revoked_at,
        allowed_models=key.allowed_models, regions=key.regions, rotated_from=key.rotated_from,
        revoke_at=key.revoke_at)


def limit_view(limit: KeyLimit) -> LimitView:
    return LimitView(
        id=limit.id, team_id=limit.team_id, key_id=limit.key_id, model=limit.model_id,
        requests_per_minute=limit.requests_per_minute, tokens_per_minute=limit.tokens_per_minute,
        concurrency=limit.concurrency)
