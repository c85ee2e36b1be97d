"""The first operator token. Whoever has the database's own credentials may make it; all others come from the API."""

import migrations
from control_plane.audit import service as audit
from control_plane.contracts.operator import OperatorScope, OperatorTokenRequest
from control_plane.db import Database
from control_plane.identity import repository, service
from control_plane.settings import Settings

NAME = "local-operator"
ACTOR = "meridian:bootstrap"
TTL_S = 30 * 86_400


async def bootstrap(settings: Settings | None = None) -> str:
    """A token with all scopes for 30 days, in a migrated database. It replaces the earlier one of the same name."""
    settings = settings or Settings()
    await migrations.upgrade(settings.database_url)
    asked = OperatorTokenRequest(name=NAME, scopes=list(OperatorScope), ttl_s=TTL_S)
    db = Database(settings.database_url, pool_size=1)
    try:
        async with db.begin() as session:
            if await repository.revoke_operator_tokens_named(session, NAME):
                audit.record(session, actor=ACTOR, action="operator_token.replace", target=f"operator_token:{NAME}")
            made = await service.create_operator_token(session, asked, settings.environment, ACTOR)
    finally:
        await db.aclose()
    return made.token
