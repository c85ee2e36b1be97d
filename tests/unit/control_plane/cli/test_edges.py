"""`meridian edge override` and its like, against real edges and no control plane."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane.contracts.operator import EdgeStatus
from control_plane.contracts.signing import SigningKey
from tests.ports import claim_ports
from tests.ran import Ran
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.real_edges import RealEdge
from tests.unit.control_plane.cli.servers import OperatorServer
from tests.unit.edge_api.override.orders import EAST, NORTH

WHY = ("--reason", "it burns")


@pytest.fixture
def key(nowhere: Meridian) -> SigningKey:
    """The key that the command line finds."""
    return SigningKey.load_or_create(nowhere.state / "operator" / "override.key")


@pytest.fixture
def edges(nowhere: Meridian, key: SigningKey, tmp_path: Path) -> Iterator[list[RealEdge]]:
    """Two edges that the local stack's file names."""
    one, two = (RealEdge(name, key, tmp_path) for name in ("edge_1", "edge_2"))
    with one.running(), two.running():
        (nowhere.state / "local.json").write_text(json.dumps({"edge_urls": [f"{one.url}/v1", f"{two.url}/v1"]}))
        yield [one, two]


@pytest.fixture
def dead_url() -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{claim_ports(1)}"


def order(meridian: Meridian, *arguments: str) -> Ran:
    return meridian("edge", "override", *arguments, *WHY, "-o", "json")


def test_every_edge_obeys_with_no_control_plane_at_all(nowhere: Meridian, edges: list[RealEdge]) -> None:
    done = order(nowhere, EAST)
    assert (done.code, [one["outcome"] for one in done.json["edges"]]) == (0, ["taken", "taken"])
    assert [edge.weights for edge in edges] == [{EAST: 0, NORTH: 100}] * 2


def test_an_override_is_lifted(nowhere: Meridian, edges: list[RealEdge]) -> None:
    order(nowhere, EAST)
    assert order(nowhere, EAST, "--lift").code == 0
    assert [edge.weights[EAST] for edge in edges] == [100, 100]


def test_one_edge_can_be_told_alone(nowhere: Meridian, edges: list[RealEdge]) -> None:
    assert order(nowhere, EAST, "--edge", edges[1].url + "/v1").code == 0
    assert [edge.weights[EAST] for edge in edges] == [100, 0]


def test_for_people_there_is_a_line_an_edge(nowhere: Meridian, edges: list[RealEdge]) -> None:
    lines = nowhere("edge", "override", EAST, *WHY, "-y", "-o", "plain").out.splitlines()
    assert [line.split("\t")[:3] for line in lines[1:]] == [
        [edge.url, edge.name, "taken"] for edge in edges]


def test_an_edge_that_is_not_reached_makes_it_exit_code_5_and_says_what_to_do(
        nowhere: Meridian, edges: list[RealEdge], dead_url: str) -> None:
    done = order(nowhere, EAST, "--edge", edges[0].url, "--edge", dead_url)
    assert done.code == 5
    assert "1 of 2 edges route as before" in done.err
    assert "--edge URL" in done.err
    assert edges[0].weights[EAST] == 0


def test_when_no_edge_is_reached_nothing_is_done(nowhere: Meridian, key: SigningKey, dead_url: str) -> None:
    done = order(nowhere, EAST, "--edge", dead_url)
    assert (done.code, "no edge was reached" in done.err) == (1, True)


def test_the_last_datacenter_is_refused_with_exit_code_3_and_forced_with_0(
        nowhere: Meridian, edges: list[RealEdge]) -> None:
    order(nowhere, EAST)
    refused = order(nowhere, NORTH)
    assert (refused.code, json.loads(refused.err)["rule"]) == (3, "last_datacenter")
    assert order(nowhere, NORTH, "--force").code == 0
    assert edges[0].weights == {EAST: 0, NORTH: 0}


def test_evacuation_is_handed_on(nowhere: Meridian, edges: list[RealEdge]) -> None:
    order(nowhere, EAST, "--evacuate")
    routed = edges[0].holder.routed
    assert routed is not None
    assert [place.evacuate for place in routed.datacenters] == [True, False]


def test_a_datacenter_that_no_edge_knows_is_said_to_be_that(nowhere: Meridian, edges: list[RealEdge]) -> None:
    done = order(nowhere, "us-esat-1")
    assert (done.code, f"it knows {EAST}, {NORTH}" in done.err) == (1, True)


def test_a_key_that_edges_do_not_know_is_told(nowhere: Meridian, edges: list[RealEdge], tmp_path: Path) -> None:
    SigningKey.load_or_create(tmp_path / "other.key")
    done = order(nowhere, EAST, "--key", str(tmp_path / "other.key"))
    assert (done.code, "does not believe this key" in done.err) == (1, True)


def test_without_a_key_it_says_how_to_make_one(nowhere: Meridian, dead_url: str) -> None:
    done = order(nowhere, EAST, "--edge", dead_url)
    assert (done.code, "meridian edge keygen" in done.err) == (2, True)


def test_without_a_list_of_edges_it_says_how_to_name_them(nowhere: Meridian, key: SigningKey) -> None:
    done = order(nowhere, EAST)
    assert (done.code, "--edge URL" in done.err) == (1, True)


@pytest.mark.parametrize("wrong", [("--ttl", "25h"), ("--ttl", "0s"), ("--lift", "--force"), ("--lift", "--evacuate")])
def test_what_cannot_be_meant_is_wrong_usage(nowhere: Meridian, edges: list[RealEdge], wrong: tuple[str, ...]) -> None:
    assert order(nowhere, EAST, *wrong).code == 2


def test_a_reason_is_needed(nowhere: Meridian, edges: list[RealEdge]) -> None:
    assert nowhere("edge", "override", EAST).code == 2


def test_overrides_are_listed_by_the_edges_themselves(nowhere: Meridian, edges: list[RealEdge]) -> None:
    order(nowhere, EAST, "--edge", edges[0].url)
    listed = nowhere("edge", "overrides", "-o", "json")
    assert listed.code == 0
    first, second = listed.json["data"]
    assert [(told["datacenter"], told["state"], told["key_name"]) for told in first["overrides"]] == [
        (EAST, "in_force", "olga")]
    assert second["overrides"] == []


def test_edges_that_do_not_answer_are_in_the_list_as_that(
        nowhere: Meridian, edges: list[RealEdge], dead_url: str) -> None:
    listed = nowhere("edge", "overrides", "--edge", edges[0].url, "--edge", dead_url, "-o", "plain")
    assert (listed.code, f"{dead_url}\t–\t–\tconnection refused" in listed.out) == (5, True)  # noqa: RUF001


def test_status_keeps_where_the_edges_are_for_the_day_when_it_cannot_be_asked(
        meridian: Meridian, api: OperatorServer, key: SigningKey, tmp_path: Path) -> None:
    real = RealEdge("edge_9", key, tmp_path)
    with real.running():
        api.status = api.status.model_copy(update={"edges": [
            EdgeStatus(id="edge_9", region=EAST, live=True, release=None, acked_version=1, behind=0, nack=None,
                       last_seen_age_s=0.0, open_requests={}, url=real.url)]})
        assert meridian("status").code == 0
        kept = meridian.state / "operator" / "edges.json"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        meridian.point_at(["http://127.0.0.1:1"])
        assert order(meridian, EAST).code == 0
        assert real.weights[EAST] == 0


def test_keygen_makes_a_private_file_and_tells_only_the_public_half(nowhere: Meridian) -> None:
    made = nowhere("edge", "keygen", "--name", "olga", "--no-register", "-o", "json")
    path = nowhere.state / "operator" / "override.key"
    assert (made.code, made.json["registered"], made.json["file"]) == (0, False, str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load_or_create(path).public.text == made.json["public_key"]


def test_keygen_overwrites_no_key(nowhere: Meridian, key: SigningKey) -> None:
    assert nowhere("edge", "keygen", "--name", "olga", "--no-register").code == 2
    assert SigningKey.load_or_create(nowhere.state / "operator" / "override.key").public.raw == key.public.raw
