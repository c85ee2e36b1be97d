"""The edge's poll: good snapshots are taken and acknowledged, bad ones refused and named, revocations applied."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts.clock import ManualClock
from control_plane.contracts.evidence import QualityMinute, Vote, VoteVerdict
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.snapshot import SignedSnapshot, Snapshot
from control_plane.contracts.transport import ControlPlaneAway
from edge_api.auth import Keyring
from edge_api.identity import ControlPlaneLink, Renewal
from edge_api.key_store import KeyStore
from edge_api.metrics import Metrics
from edge_api.open_requests import OpenRequests
from edge_api.snapshot.client import SyncClient
from edge_api.snapshot.holder import TableHolder
from edge_api.snapshot.store import SnapshotStore
from tests.integration.edge_api.control_plane import IDENTITY, TOKEN, ControlPlane, principal
from tests.integration.edge_api.test_keyring import CLIENT, DIGEST
from tests.integration.edge_api.waiting import until
from tests.unit.edge_api.builders import MODEL, snapshot


class Following:
    """An edge's sync with what it works on."""

    def __init__(self, link: ControlPlaneLink, directory: Path, metrics: Metrics, renewal: Renewal) -> None:
        self.link, self.metrics = link, metrics
        self.holder, self.open_requests = TableHolder(), OpenRequests()
        self.store = SnapshotStore(directory / "snapshot.json")
        self.keyring = Keyring(link, KeyStore(directory / "keys.json"), ManualClock(), metrics, 100, 60)
        self.client = SyncClient(
            link, self.holder, self.store, self.keyring, self.open_requests, "boot_1", 0.2, metrics, renewal)

    @property
    def version(self) -> tuple[int, int] | None:
        table = self.holder.current
        return (table.lineage, table.version) if table else None

    def stored(self) -> Snapshot | None:
        assert self.link.identity is not None
        return self.store.load(self.link.identity.control_plane_keys)


@pytest.fixture
def edge(link: ControlPlaneLink, tmp_path: Path, metrics: Metrics, token_file: Path,
         control_plane: ControlPlane) -> Following:
    renewal = Renewal(link, tmp_path / "state", token_file, [control_plane.url])
    return Following(link, tmp_path / "state", metrics, renewal)


@pytest.fixture
async def running(edge: Following) -> AsyncIterator[Following]:
    task = asyncio.create_task(edge.client.run())
    yield edge
    task.cancel()


async def test_a_good_snapshot_is_used_stored_and_acknowledged(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=7))
    await edge.client.poll_once()
    assert edge.version == (1, 7)
    assert edge.stored() == snapshot(version=7)
    await edge.client.poll_once()
    assert [(sync.acked_lineage, sync.acked_version) for sync in control_plane.syncs] == [(0, 0), (1, 7)]
    assert edge.client.problem == ""


async def test_a_poll_waits_for_news(running: Following, control_plane: ControlPlane) -> None:
    control_plane.next_wait_s = 30.0
    control_plane.publish(snapshot(version=1))
    await until(lambda: any(sync.wait_s == 30.0 for sync in control_plane.syncs))
    control_plane.publish(snapshot(version=2, weights={"us-east-1": 0, "eu-north-1": 100}))
    await until(lambda: running.version == (1, 2), within_s=10)


async def test_an_acknowledgement_goes_out_at_once(running: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=1))
    await until(lambda: any(sync.acked_version == 1 for sync in control_plane.syncs), 5)


@pytest.mark.parametrize(("bad", "reason"), [
    (snapshot(version=4), "not newer"),
    (snapshot(version=9, lineage=0), "no version"),
    (snapshot(version=6, models=()), "gone without a reason"),
    (snapshot(version=6, models=("sim/other",)), "gone without a reason"),
    (snapshot(version=6, weights={"us-east-1": 0, "eu-north-1": 0}), "no routable datacenter and no reason"),
    (snapshot(version=6, weights={"us-east-1": 10_001}), "weight 10001"),
])
async def test_a_snapshot_that_means_harm_is_refused_named_and_the_old_one_kept(
        edge: Following, control_plane: ControlPlane, bad: Snapshot, reason: str) -> None:
    control_plane.publish(snapshot(version=5))
    await edge.client.poll_once()
    control_plane.publish(bad)
    await edge.client.poll_once()
    assert edge.version == (1, 5)
    assert edge.stored() == snapshot(version=5)
    await edge.client.poll_once()
    nack = control_plane.syncs[-1].nack
    assert nack is not None
    assert (nack.lineage, nack.version) == (bad.lineage, bad.version)
    assert reason in nack.error


async def test_a_snapshot_of_another_signer_is_refused(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=1))
    await edge.client.poll_once()
    control_plane.publish(snapshot(version=2), SigningKey.generate())
    await edge.client.poll_once()
    await edge.client.poll_once()
    assert edge.version == (1, 1)
    nack = control_plane.syncs[-1].nack
    assert nack is not None
    assert "unknown key" in nack.error


@pytest.mark.parametrize("changed", [
    lambda signed: signed.model_copy(update={"body": signed.body.replace('"weight":100', '"weight":999')}),
    lambda signed: signed.model_copy(update={"body": signed.body + " "}),
    lambda signed: signed.model_copy(update={"signature": "AAAA"}),
    lambda signed: signed.model_copy(update={"signature": "no base64 at all"}),
    lambda signed: signed.model_copy(update={"body": "{}"}),
])
async def test_a_snapshot_that_was_changed_on_the_way_is_refused(
        edge: Following, control_plane: ControlPlane, changed: object) -> None:
    control_plane.offer(changed(SignedSnapshot.seal(snapshot(), control_plane.key)))  # type: ignore[operator]
    await edge.client.poll_once()
    assert edge.version is None
    assert edge.stored() is None
    assert "refused" in edge.client.problem


async def test_refusals_are_counted(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(), SigningKey.generate())
    await edge.client.poll_once()
    assert b"meridian_edge_snapshots_refused_total 1.0" in edge.metrics.text()


async def test_after_a_refusal_the_next_good_snapshot_is_taken_and_the_nack_is_over(
        edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=2), SigningKey.generate())
    await edge.client.poll_once()
    control_plane.publish(snapshot(version=3))
    await edge.client.poll_once()
    await edge.client.poll_once()
    assert edge.version == (1, 3)
    assert control_plane.syncs[-1].nack is None


async def test_a_higher_lineage_wins_over_a_higher_version(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=900))
    await edge.client.poll_once()
    control_plane.publish(snapshot(version=3, lineage=2, models=("sim/other",)))
    await edge.client.poll_once()
    assert edge.version == (2, 3)


async def test_a_model_without_a_datacenter_is_taken_when_the_snapshot_says_why(
        edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=1))
    await edge.client.poll_once()
    control_plane.publish(snapshot(version=2, weights={"us-east-1": 0}, reason="scaled to zero"))
    await edge.client.poll_once()
    assert edge.holder.current is not None
    assert edge.holder.current.models[MODEL].unroutable_reason == "scaled to zero"


async def test_a_control_plane_that_repeats_a_bad_snapshot_is_not_hammered(
        running: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=2), SigningKey.generate())
    await until(lambda: len(control_plane.syncs) >= 2)  # the second one is the report
    await asyncio.sleep(1.5)
    assert len(control_plane.syncs) <= 4


async def test_revocations_are_applied_and_the_next_poll_goes_on_after_them(
        edge: Following, control_plane: ControlPlane) -> None:
    assert await edge.keyring.find(DIGEST, CLIENT) is not None
    control_plane.revoke(DIGEST)
    await edge.client.poll_once()
    assert edge.keyring.cached(DIGEST) is None
    await edge.client.poll_once()
    assert [sync.revocations_after for sync in control_plane.syncs] == [0, 1]


async def test_a_revocation_arrives_within_a_poll(running: Following, control_plane: ControlPlane) -> None:
    await running.keyring.find(DIGEST, CLIENT)
    control_plane.revoke(DIGEST)
    await until(lambda: running.keyring.cached(DIGEST) is None, 2)


async def test_changes_are_applied_and_the_next_poll_goes_on_after_them(
        edge: Following, control_plane: ControlPlane) -> None:
    await edge.keyring.find(DIGEST, CLIENT)
    control_plane.change(DIGEST, principal(regions=["us-east-1"]))
    await edge.client.poll_once()
    await edge.client.poll_once()
    assert [sync.changes_after for sync in control_plane.syncs] == [0, 1]


async def test_a_change_arrives_within_a_poll(running: Following, control_plane: ControlPlane) -> None:
    refreshing = asyncio.create_task(running.keyring.run_refresh())
    await running.keyring.find(DIGEST, CLIENT)
    control_plane.change(DIGEST, principal(regions=["us-east-1"]))
    await until(lambda: running.keyring.cached(DIGEST) == principal(regions=["us-east-1"]))
    refreshing.cancel()


async def test_it_learns_how_many_edges_are_alive(edge: Following, control_plane: ControlPlane) -> None:
    assert edge.client.live_edges == 1
    control_plane.live_edges = 3
    await edge.client.poll_once()
    assert edge.client.live_edges == 3


async def test_a_bad_snapshot_does_not_hold_revocations_back(edge: Following, control_plane: ControlPlane) -> None:
    await edge.keyring.find(DIGEST, CLIENT)
    control_plane.publish(snapshot(), SigningKey.generate())
    control_plane.revoke(DIGEST)
    await edge.client.poll_once()
    assert edge.keyring.cached(DIGEST) is None


async def test_open_requests_are_reported_with_every_datacenter(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot())
    await edge.client.poll_once()
    edge.open_requests.enter("us-east-1")
    await edge.client.poll_once()
    assert [sync.open_requests for sync in control_plane.syncs] == [{}, {"us-east-1": 1, "eu-north-1": 0}]


async def test_while_the_control_plane_is_away_the_table_stays_and_news_come_when_it_is_back(
        running: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=1))
    await until(lambda: running.version == (1, 1))
    control_plane.away = True
    await until(lambda: "away" in running.client.problem)
    assert running.version == (1, 1)
    control_plane.publish(snapshot(version=2))
    control_plane.away = False
    await until(lambda: running.version == (1, 2), 10)
    assert running.client.problem == ""


async def test_a_refused_signature_counts_as_away(edge: Following, control_plane: ControlPlane) -> None:
    control_plane.identities[IDENTITY] = SigningKey.generate().public
    with pytest.raises(ControlPlaneAway, match="HTTP 401"):
        await edge.client.poll_once()


async def test_an_edge_that_is_not_known_says_so_once_and_serves_on(
        running: Following, control_plane: ControlPlane) -> None:
    control_plane.publish(snapshot(version=1))
    await running.keyring.find(DIGEST, CLIENT)
    await until(lambda: running.version == (1, 1))
    with capture_logs() as logs:
        control_plane.identities.clear()
        await until(lambda: "does not know this identity" in running.client.problem)
        await asyncio.sleep(1)
    assert [line["event"] for line in logs] == ["identity_unknown"]
    assert "MERIDIAN_ENROLMENT_TOKEN_FILE" in running.client.problem
    assert running.version == (1, 1)
    assert running.keyring.cached(DIGEST) is not None


async def test_an_edge_that_is_not_known_enrols_again_with_the_same_key_once_it_has_a_new_token(
        running: Following, control_plane: ControlPlane, token_file: Path) -> None:
    assert running.link.identity is not None
    key = running.link.identity.key.public.text
    control_plane.identities.clear()
    await until(lambda: "does not know this identity" in running.client.problem)
    control_plane.tokens = {"another": "edge_again"}
    await asyncio.to_thread(token_file.write_text, "another\n")
    control_plane.publish(snapshot(version=4))
    await until(lambda: running.version == (1, 4), 10)
    assert control_plane.identities["edge_again"].text == key
    assert running.client.problem == ""


async def test_a_token_that_was_used_or_refused_is_not_shown_again(
        running: Following, control_plane: ControlPlane, token_file: Path) -> None:
    control_plane.identities.clear()
    await until(lambda: "does not know this identity" in running.client.problem)
    await asyncio.sleep(0.5)
    assert control_plane.tokens_shown == [TOKEN]  # at its enrolment, and never since
    await asyncio.to_thread(token_file.write_text, "of somebody else")
    await until(lambda: len(control_plane.tokens_shown) > 1, 10)
    refused = control_plane.refused_requests
    await until(lambda: control_plane.refused_requests >= refused + 2, 15)
    assert control_plane.tokens_shown == [TOKEN, "of somebody else"]


async def test_enrolling_again_keeps_the_keys_that_snapshots_must_be_signed_with(
        running: Following, control_plane: ControlPlane, token_file: Path) -> None:
    assert running.link.identity is not None
    pinned = [key.text for key in running.link.identity.control_plane_keys]
    control_plane.identities.clear()
    control_plane.key = SigningKey.generate()  # an impostor that only refuses could otherwise take over
    control_plane.tokens = {"another": "edge_again"}
    await asyncio.to_thread(token_file.write_text, "another")
    await until(lambda: running.link.identity is not None and running.link.identity.name == "edge_again", 10)
    assert [key.text for key in running.link.identity.control_plane_keys] == pinned


async def test_a_disk_that_cannot_store_the_snapshot_does_not_keep_it_from_use(
        edge: Following, control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "state" / "snapshot.json").mkdir()
    control_plane.publish(snapshot(version=3))
    await edge.client.poll_once()
    assert edge.version == (1, 3)


async def test_a_long_outage_is_two_lines_in_the_log(running: Following, control_plane: ControlPlane) -> None:
    with capture_logs() as logs:
        control_plane.away = True
        await until(lambda: logs)
        await asyncio.sleep(1)
        control_plane.away = False
        await until(lambda: "control_plane_back" in [line["event"] for line in logs])
    assert [line["event"] for line in logs] == ["control_plane_away", "control_plane_back"]


class Witness:
    """Says of datacenters what a test tells it to."""

    def __init__(self) -> None:
        self.against: list[Vote] = []
        self.counted: list[QualityMinute] = []
        self.arrivals = 0

    def votes(self) -> list[Vote]:
        return self.against

    def minutes(self) -> list[QualityMinute]:
        return self.counted

    def streams(self) -> dict[str, int]:
        return {"us-east-1": 3}

    def sessions(self) -> dict[str, int]:
        return {"us-east-1": 9}

    def arrived(self) -> None:
        self.arrivals += 1


@pytest.fixture
def witness(edge: Following) -> Witness:
    made = Witness()
    edge.client.evidence = made
    return made


LOST = Vote(datacenter_id="us-east-1", verdict=VoteVerdict.LOST, held_s=1.0, evidence="refuses connections")


async def test_a_poll_says_what_the_edge_saw(
        edge: Following, control_plane: ControlPlane, witness: Witness) -> None:
    witness.against = [LOST]
    witness.counted = [QualityMinute(minute=60, model_id=MODEL, datacenter_id="us-east-1", succeeded=3)]
    await edge.client.poll_once()
    (sync,) = control_plane.syncs
    assert (sync.votes, sync.minutes) == (witness.against, witness.counted)
    assert (sync.open_streams, sync.sessions) == ({"us-east-1": 3}, {"us-east-1": 9})
    assert witness.arrivals == 1


async def test_another_vote_cuts_a_waiting_poll_short(
        running: Following, control_plane: ControlPlane, witness: Witness) -> None:
    control_plane.next_wait_s = 30.0
    control_plane.publish(snapshot(version=1))
    await until(lambda: any(sync.wait_s == 30.0 and sync.acked_version == 1 for sync in control_plane.syncs))
    for against in ([LOST], []):
        control_plane.syncs.clear()
        witness.against, began_s = against, asyncio.get_running_loop().time()
        await until(lambda: control_plane.syncs, 5)
        assert asyncio.get_running_loop().time() - began_s < 1.0
        assert control_plane.syncs[-1].votes == against


async def test_the_same_vote_said_for_longer_cuts_nothing_short(
        running: Following, control_plane: ControlPlane, witness: Witness) -> None:
    control_plane.next_wait_s, witness.against = 30.0, [LOST]
    control_plane.publish(snapshot(version=1))
    await until(lambda: any(sync.wait_s == 30.0 and sync.votes for sync in control_plane.syncs))
    before = len(control_plane.syncs)
    witness.against = [LOST.model_copy(update={"held_s": 60.0, "evidence": "does not answer probes"})]
    await asyncio.sleep(1.0)
    assert len(control_plane.syncs) == before


async def test_a_report_that_did_not_arrive_is_not_taken_for_one(
        edge: Following, control_plane: ControlPlane, witness: Witness) -> None:
    control_plane.away = True
    with pytest.raises(ControlPlaneAway):
        await edge.client.poll_once()
    assert witness.arrivals == 0
