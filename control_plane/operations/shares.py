"""Arithmetic of shares: what part of a model's new requests each deployment gets, and how a shift moves it. Pure.

A deployment gets new requests in proportion to its datacenter's weight times its share.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FULL = 1_000
MAX_SHARE = 10_000

SHARES = "shares"
"""Where a shift notes the shares that it found."""


@dataclass(frozen=True, slots=True)
class Part:
    """One deployment's part of a model. `weight` is its datacenter's effective one."""

    deployment_id: str
    datacenter_id: str
    weight: int
    share_permille: int

    @property
    def pull(self) -> int:
        """What it gets requests in proportion to."""
        return self.weight * self.share_permille


def shifted(source: Sequence[Part], target: Sequence[Part], percent: int) -> dict[str, int]:
    """The shares once `percent` of what `source` gets go to `target`: what one loses the other gains, whatever their
    datacenters' weights are. Within each, deployments keep their proportions; a target that had none splits evenly."""
    after = {one.deployment_id: round(one.share_permille * (100 - percent) / 100) for one in source}
    moved = sum(one.weight * (one.share_permille - after[one.deployment_id]) for one in source)
    pull, weight = sum(one.pull for one in target), sum(one.weight for one in target)
    for one in target:
        gain = moved / pull * one.share_permille if pull else moved / weight if weight else 0.0
        after[one.deployment_id] = min(MAX_SHARE, round(one.share_permille + gain))
    return after


def most_percent(source: Sequence[Part], target: Sequence[Part]) -> int:
    """How much of what `source` gets `target` can take before a share is as high as shares get."""
    pull, weight = sum(one.pull for one in source), sum(one.weight for one in target)
    room = min((MAX_SHARE - one.share_permille for one in target), default=0) * weight
    return 100 if pull <= room else 100 * room // pull


def percent_by_datacenter(parts: Iterable[Part]) -> dict[str, float]:
    """What part of the model's new requests each datacenter gets."""
    pulls: dict[str, int] = {}
    for one in parts:
        pulls[one.datacenter_id] = pulls.get(one.datacenter_id, 0) + one.pull
    total = sum(pulls.values())
    return {place: 100.0 * pull / total if total else 0.0 for place, pull in pulls.items()}
