"""The base of every wire type."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_NOTE = 1_000

Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A number that a database keeps in 64 bits."""

Wait = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
"""How long a long-poll may wait, in seconds; whoever answers may answer sooner."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
"""An identifier that a machine made up or repeats."""

Note = Annotated[str, AfterValidator(lambda text: text.replace("\x00", "")[:MAX_NOTE])]
"""What a machine says to people: cut rather than refused, so that a long error never costs a report."""


class Wire(BaseModel):
    """An immutable message. Unknown fields are ignored, so that N and N+1 can talk while a release rolls out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Document(BaseModel):
    """An immutable document that a person writes. Unknown fields are refused, so that a typo is never silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")
