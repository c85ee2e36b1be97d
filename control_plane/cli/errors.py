"""What can go wrong on the command line, and the exit code of each.

CommandFailed
├── UsageFault        what was typed cannot be right
├── StackNotFound     no local stack, no address
├── Unreachable       nobody answers
├── Denied            the control plane or the edge said no
├── Refused           a safety rule said no
├── StillRunning      the wait is over, the operation is not
└── Unfinished        it ended, but not well
"""

from enum import IntEnum

from pydantic import BaseModel, Field


class ExitCode(IntEnum):
    """What the shell sees. Anything unexpected is `FAILED`, too."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    TIMED_OUT = 4
    PARTIAL = 5
    INTERRUPTED = 130


class ErrorReport(BaseModel):
    """An error as `-o json` writes it on standard error."""

    code: str
    message: str
    exit_code: int
    rule: str | None = None
    numbers: dict[str, str] = Field(default_factory=dict)


class CommandFailed(Exception):
    """Ends the command with one clear line. The message says what is wrong and what to do about it."""

    exit_code = ExitCode.FAILED
    code = "failed"

    def __init__(self, message: str, *, code: str | None = None, rule: str | None = None,
                 numbers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.rule, self.numbers = rule, numbers or {}

    def report(self) -> ErrorReport:
        """The same as data."""
        return ErrorReport(code=self.code, message=str(self), exit_code=int(self.exit_code),
                           rule=self.rule, numbers=self.numbers)


class UsageFault(CommandFailed):
    """What was typed cannot be right."""

    exit_code = ExitCode.USAGE
    code = "usage"


class StackNotFound(CommandFailed):
    """There is no local stack where it was looked for, and no address was given."""

    code = "no_stack"


class Unreachable(CommandFailed):
    """Nobody answers at the address."""

    code = "unreachable"


class Denied(CommandFailed):
    """The control plane or the edge answered with an error."""

    code = "denied"


class Refused(CommandFailed):
    """A safety rule refused the operation; `rule` and `numbers` say which and why."""

    exit_code = ExitCode.REFUSED
    code = "refused"


class StillRunning(CommandFailed):
    """The time to wait is over and the operation still runs."""

    exit_code = ExitCode.TIMED_OUT
    code = "still_running"


class Unfinished(CommandFailed):
    """It ended, but it failed, was cancelled or stopped half-way."""

    exit_code = ExitCode.PARTIAL
    code = "unfinished"
