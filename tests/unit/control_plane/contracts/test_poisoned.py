"""Poisoned snapshots: signed by the right key, of the right shape, and wrong. Whatever is done to a good one in these
ways, at any place of it, no edge may route by it."""

import base64
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, SnapshotRefused, TrafficState

KEY = SigningKey.generate()
ROUNDS = 10_000
CLOSED = ("drained", "failed", "recovering")
Body = dict[str, Any]


def good() -> Body:
    """Three datacenters in two regions, four models, one of them served nowhere and saying why."""
    price = {"version": "p", "input_usd": "0.000001", "cached_input_usd": "0.0000001", "output_usd": "0.000002"}

    def route(model: int, place: int) -> Body:
        return {"deployment_id": f"d-{model}-{place}", "fleet_id": f"f-{place}", "datacenter_id": f"dc-{place}",
                "ingress_url": f"http://10.0.0.{place}:8000", "share_permille": 1_000}

    def model(number: int, places: range, reason: str | None = None) -> Body:
        return {"id": f"m/{number}", "display_name": "M", "created_s": 1, "owned_by": "m", "context_window": 8_192,
                "max_output_tokens": 4_096, "default_max_tokens": 256, "price": price,
                "routes": [route(number, place) for place in places], "unroutable_reason": reason}

    return {
        "lineage": 1, "version": 7, "built_at_s": 1.0,
        "datacenters": [{"id": f"dc-{place}", "region": f"r-{place % 2}", "state": "active", "weight": 100}
                        for place in range(3)],
        "models": [model(0, range(3)), model(1, range(1, 3)), model(2, range(1)), model(3, range(0), "scaled to zero")]}


def somewhere(body: Body, chance: random.Random) -> tuple[Body, Body, Body]:
    """A datacenter, a model that is served, and one of its routes."""
    model = chance.choice(body["models"][:3])
    return chance.choice(body["datacenters"]), model, chance.choice(model["routes"])


def close_everywhere(body: Body, model: Body) -> None:
    """Takes the model's datacenters away without a word."""
    for place in body["datacenters"]:
        if place["id"] in {route["datacenter_id"] for route in model["routes"]}:
            place.update(state="drained", weight=0)


POISONS: dict[str, Callable[[Body, random.Random], object]] = {
    "no version": lambda body, chance: body.update({chance.choice(["version", "lineage"]): chance.randint(-5, 0)}),
    "a datacenter twice": lambda body, chance: body["datacenters"].append(chance.choice(body["datacenters"])),
    "a model twice": lambda body, chance: body["models"].append(chance.choice(body["models"])),
    "a deployment twice": lambda body, chance: somewhere(body, chance)[1]["routes"].append(
        body["models"][0]["routes"][0]),
    "a datacenter without a name": lambda body, chance: somewhere(body, chance)[0].update(id=""),
    "a weight out of range": lambda body, chance: somewhere(body, chance)[0].update(
        weight=chance.choice([-1, 10_001, 2**40])),
    "active without weight": lambda body, chance: somewhere(body, chance)[0].update(weight=0),
    "closed with weight": lambda body, chance: somewhere(body, chance)[0].update(state=chance.choice(CLOSED)),
    "an unknown state": lambda body, chance: somewhere(body, chance)[0].update(state="burning"),
    "active and evacuated": lambda body, chance: somewhere(body, chance)[0].update(evacuate=True),
    "a datacenter missing": lambda body, chance: body["datacenters"].remove(somewhere(body, chance)[0]),
    "routed nowhere": lambda body, chance: somewhere(body, chance)[2].update(datacenter_id="dc-9"),
    "no address": lambda body, chance: somewhere(body, chance)[2].update(ingress_url=chance.choice(
        ["", "10.0.0.1:8000", "ftp://10.0.0.1", "http://", "http://:80", "http://h:99999", "http://h:0", "http://h/v1",
         "http://h?x", "http://user@h:1", "http://h\n:1", "http://h h", "file:///etc/passwd", "http://[::1"])),
    "a share out of range": lambda body, chance: somewhere(body, chance)[2].update(
        share_permille=chance.choice([-1, 10_001])),
    "all shares gone": lambda body, chance: [route.update(share_permille=0)
                                             for route in somewhere(body, chance)[1]["routes"]],
    "all datacenters closed": lambda body, chance: close_everywhere(body, somewhere(body, chance)[1]),
    "all routes gone": lambda body, chance: somewhere(body, chance)[1].update(routes=[]),
    "a limit over the limit": lambda body, chance: somewhere(body, chance)[1].update(
        default_max_tokens=chance.choice([0, -1, 4_097])),
    "no window": lambda body, chance: somewhere(body, chance)[1].update(
        {chance.choice(["context_window", "max_output_tokens"]): chance.choice([0, -1])}),
    "a price that pays": lambda body, chance: somewhere(body, chance)[1].update(price={
        **body["models"][0]["price"], chance.choice(["input_usd", "cached_input_usd", "output_usd"]): "-0.000001"}),
    "a price that is no number": lambda body, chance: somewhere(body, chance)[1].update(price={
        **body["models"][0]["price"], chance.choice(["input_usd", "output_usd"]): chance.choice(
            ["NaN", "Infinity", "free"])}),
    "a part missing": lambda body, chance: body.pop(chance.choice(["lineage", "version", "datacenters", "models"])),
}


def signed(body: Body) -> SignedSnapshot:
    """As a control plane that lost its mind would sign it: without looking."""
    text = json.dumps(body)
    signature = base64.urlsafe_b64encode(KEY.sign(text.encode())).decode()
    return SignedSnapshot(key_id=KEY.public.key_id, signature=signature, body=text)


def test_the_good_one_is_taken() -> None:
    taken = signed(good()).open([KEY.public])
    assert [model.id for model in taken.models] == ["m/0", "m/1", "m/2", "m/3"]
    assert taken.models[0].price.input_usd == Decimal("0.000001")


@pytest.mark.parametrize("state", [TrafficState.DRAINING, TrafficState.WARMING])
@pytest.mark.parametrize("weight", [0, 50])
def test_a_datacenter_on_its_way_may_have_any_part_of_its_traffic(state: TrafficState, weight: int) -> None:
    body = good()
    body["datacenters"][1].update(state=state.value, weight=weight, evacuate=state is TrafficState.DRAINING)
    assert signed(body).open([KEY.public]).datacenters[1].weight == weight


@pytest.mark.parametrize("poison", POISONS)
def test_each_poison_is_refused(poison: str) -> None:
    for seed in range(20):
        body = good()
        POISONS[poison](body, random.Random(seed))
        with pytest.raises(SnapshotRefused):
            signed(body).open([KEY.public])


def test_of_ten_thousand_poisoned_snapshots_none_is_taken() -> None:
    chance, taken = random.Random(4), []
    for _ in range(ROUNDS):
        body, poison = good(), chance.choice(sorted(POISONS))
        POISONS[poison](body, chance)
        try:
            signed(body).open([KEY.public])
        except SnapshotRefused:
            continue
        taken.append((poison, body))
    assert taken == []
