"""What operators read and write of keys beside their making: limits, models, regions, rotation.

A limit binds one key, or all keys of a team together; with a model only requests to that one.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from control_plane.contracts.topology import ModelId, Slug
from control_plane.contracts.wire import Document, Name, Wire

MAX_NAMED = 1_000
MAX_GRACE_S = 30 * 86_400

Figure = Annotated[int, Field(ge=1, le=10**12)]
Models = Annotated[list[Annotated[str, ModelId]], Field(min_length=1, max_length=MAX_NAMED)]
Regions = Annotated[list[Annotated[str, Slug]], Field(min_length=1, max_length=MAX_NAMED)]


class LimitTarget(Document):
    """What a limit binds: a team (by id or slug) or a key (by id), and a model or all of them."""

    team: Name | None = None
    key: Name | None = None
    model: Annotated[str, ModelId] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.team is None) == (self.key is None):
            raise ValueError("name a team or a key, one of the two")
        return self


class LimitRequest(LimitTarget):
    """The whole limit: it takes the place of what bound the same thing before. A figure that is null does not limit."""

    requests_per_minute: Figure | None = None
    tokens_per_minute: Figure | None = None
    concurrency: Figure | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.requests_per_minute is self.tokens_per_minute is self.concurrency is None:
            raise ValueError("name at least one figure: requests_per_minute, tokens_per_minute or concurrency")
        return self


class LimitView(Wire):
    """A limit. `key_id` null: it binds all keys of the team together."""

    id: str
    team_id: str
    key_id: str | None
    model: str | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrency: int | None


class ModelsRequest(Document):
    """The only models that a key may use; null: any."""

    models: Models | None


class RegionsRequest(Document):
    """The only regions that may serve a team's or a key's requests; null: any."""

    regions: Regions | None


class RotationRequest(Document):
    """A new secret for a key; the old one works for `grace_s` more seconds."""

    grace_s: float = Field(default=3_600, ge=0, le=MAX_GRACE_S)
