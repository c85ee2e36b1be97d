"""The base of every wire type."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """An immutable message. Unknown fields are ignored, so that N and N+1 can talk while a release rolls out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Document(BaseModel):
    """An immutable document that a person writes. Unknown fields are refused, so that a typo is never silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")
