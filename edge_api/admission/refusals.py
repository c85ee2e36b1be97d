"""How limits are told: the `x-ratelimit-*` lines, and the refusals that name which limit stood in the way."""

from control_plane.contracts import ids
from control_plane.contracts.clock import utc
from control_plane.contracts.money import LeaseGrant, MoneyRefusalReason
from edge_api import errors
from edge_api.errors import Refusal

NO_FUNDS = "Insufficient balance (including overdraft). Please add funds to continue."
CONCURRENCY_WAIT_S = 1.0


def go_duration(milliseconds: int) -> str:
    """A duration as Go prints it: `12ms`, `1.5s`, `6m0s`."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)}ms"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    seconds = f"{rest_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + seconds


def limit_lines(kind: str, limit: int, remaining: int, reset_ms: int) -> bytes:
    """The three lines of one limit; `kind` is `requests` or `tokens`."""
    return (f"x-ratelimit-limit-{kind}: {limit}\r\nx-ratelimit-remaining-{kind}: {max(0, remaining)}\r\n"
            f"x-ratelimit-reset-{kind}: {go_duration(reset_ms)}\r\n").encode()


def limit_headers(kind: str, limit: int, remaining: int, reset_ms: int) -> tuple[tuple[bytes, bytes], ...]:
    """The same for a refusal."""
    lines = limit_lines(kind, limit, remaining, reset_ms).split(b"\r\n")
    pairs = (line.partition(b": ") for line in lines if line)
    return tuple((name, value) for name, _, value in pairs)


def over_rate(name: str, kind: str, limit: int, units: int, left: int, wait_ms: int, reset_ms: int) -> Refusal:
    """Too much in this minute; `wait_ms` is when it would fit."""
    asked = "one more request" if kind == "requests" else f"a request of up to {units} tokens"
    return Refusal(
        errors.RATE_LIMITED,
        f"rate limit reached: {name} is {limit}, {max(0, left)} left in this minute, needed for {asked}; "
        f"try again in {go_duration(wait_ms)}",
        retry_after_s=_later(wait_ms / 1000), metadata={"limit": name},
        more_headers=limit_headers(kind, limit, left, reset_ms))


def over_whole_limit(name: str, kind: str, limit: int, units: int) -> Refusal:
    """It can never fit."""
    return Refusal(
        errors.OVER_WHOLE_LIMIT,
        f"the request may use up to {units} {kind}, more than the whole limit {name} of {limit}; it is refused at any "
        f"time: send a shorter prompt, ask for fewer tokens, or have the limit raised", metadata={"limit": name})


def over_concurrency(name: str, limit: int) -> Refusal:
    """As many requests as are allowed are open."""
    return Refusal(
        errors.RATE_LIMITED, f"concurrency limit reached: {name} is {limit}; try again when a request has ended",
        retry_after_s=_later(CONCURRENCY_WAIT_S), metadata={"limit": name})


def no_money(scope: str, grant: LeaseGrant) -> Refusal:
    """A balance or a budget is used up."""
    if grant.reason is not MoneyRefusalReason.BUDGET_EXCEEDED:
        return Refusal(errors.INSUFFICIENT_FUNDS, NO_FUNDS)
    interval = grant.interval or "lifetime"
    metadata: dict[str, str | float] = {"scope": scope, "interval": interval}
    begins = ""
    if grant.resets_at_s is not None:
        metadata["resets_at"] = utc(grant.resets_at_s).strftime("%Y-%m-%dT%H:%M:%SZ")
        begins = f"; it begins anew at {metadata['resets_at']}"
    return Refusal(errors.BUDGET_EXCEEDED, f"the {interval} budget of this {scope} is used up{begins}",
                   metadata=metadata)


def money_away() -> Refusal:
    """Nobody can say whether there is money."""
    return Refusal(errors.ADMISSION_UNAVAILABLE, "the balance cannot be checked at the moment",
                   retry_after_s=_later(1.5))


def _later(wait_s: float) -> float:
    """A little later than it would fit, and not everybody at once."""
    return min(ids.jitter(1.1 * wait_s + 0.1, 0.09), errors.MAX_RETRY_AFTER_S)
