"""Who may drive a fleet: the rules of its lease, over plain data.

`epoch` is the fencing token. It grows with every new holder and never falls; whoever shows another one than the
lease's is told so and changes nothing. Time is the database's: `live` says whether the lease had not run out there.
"""

from dataclasses import dataclass
from enum import StrEnum


class LeaseRefusal(StrEnum):
    """Why a sync was refused."""

    STALE_EPOCH = "stale_epoch"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Lease:
    """A fleet's lease as stored. `previous_boot_id` is the boot that this one replaced."""

    identity: str
    boot_id: str
    epoch: int
    previous_boot_id: str | None
    live: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """What an agent shows: who it is, this boot of it, and the epoch that it was granted, if any."""

    identity: str
    boot_id: str
    epoch: int | None


def decide(held: Lease | None, claim: Claim) -> Lease | LeaseRefusal:
    """The lease after `claim`, renewed or newly granted, or why it is refused.

    A boot that holds the lease renews it. Anybody may take a lease that is free or ran out, and an agent that starts
    again takes it from its own earlier boot at once; each gets the next epoch. Whoever still shows an epoch must ask
    without one first, so that it cannot act on what it believed under the old one.
    """
    if held is None:
        return LeaseRefusal.STALE_EPOCH if claim.epoch is not None else _grant(claim, 1, None)
    if claim.identity == held.identity and claim.boot_id == held.boot_id:
        if claim.epoch not in (None, held.epoch):
            return LeaseRefusal.STALE_EPOCH
        return _grant(claim, held.epoch, held.previous_boot_id)
    if held.live and not _is_next_boot(held, claim):
        return LeaseRefusal.SUPERSEDED
    if claim.epoch is not None:
        return LeaseRefusal.STALE_EPOCH
    return _grant(claim, held.epoch + 1, held.boot_id)


def _is_next_boot(held: Lease, claim: Claim) -> bool:
    """Whether the same agent started again, rather than the boot that was just replaced coming back."""
    return claim.identity == held.identity and claim.epoch is None and claim.boot_id != held.previous_boot_id


def _grant(claim: Claim, epoch: int, previous_boot_id: str | None) -> Lease:
    return Lease(claim.identity, claim.boot_id, epoch, previous_boot_id, live=True)
