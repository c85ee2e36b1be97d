"""What every refusal of the control plane says."""

from pydantic import Field

from control_plane.contracts.wire import Wire

PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""Text that operators see in their terminals: no control characters, which could rewrite what a terminal shows."""


class Problem(Wire):
    """The body of every refusal: what is wrong, and what to do. `numbers` are what a safety rule counted."""

    code: str
    message: str
    rule: str | None = None
    numbers: dict[str, str] = Field(default_factory=dict)
