"""What a command of the `meridian` program left behind, however a test ran it."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)
