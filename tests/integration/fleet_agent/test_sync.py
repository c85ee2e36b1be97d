"""The long-poll with a real HTTP control plane: lease, refusals, absence and cuts."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.contracts import ids
from control_plane.contracts.agent_sync import LEASE_TTL_S, CommandState, DeploymentPhase, ObservedDeployment
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.recovery import Recovery, SignedRecovery
from control_plane.contracts.signing import SigningKey, VerifyKey
from control_plane.contracts.transport import ControlPlaneClient, SignatureAuth
from fleet_agent import identity, sync
from fleet_agent.core import Observed, Standing
from fleet_agent.executor import Executor
from fleet_agent.store import Store
from fleet_agent.sync import SyncLoop
from tests.integration.fleet_agent.fake_control_plane import FakeControlPlane
from tests.unit.fleet_agent import examples

KEY = SigningKey.generate()


@dataclass
class Conversation:
    """One boot's sync loop, and what it made the agent drive."""

    control_plane: FakeControlPlane
    store: Store
    client: ControlPlaneClient
    driven: list[int] = field(default_factory=list)
    observed: list[ObservedDeployment] = field(default_factory=list)
    renew: sync.Renew = sync.no_renewal
    keys: list[VerifyKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        clock = SystemClock()
        self.executor = Executor(self.store, clock, lambda desired: self.driven.append(desired.generation))
        self.loop = SyncLoop(self.client, self.executor, clock, lambda: self.observed, self.renew, self.keys)

    def look(self, *deployments: ObservedDeployment) -> None:
        self.observed = list(deployments)
        self.executor.handle(Observed(deployments))
        self.loop.look()

    def next_boot(self) -> "Conversation":
        return Conversation(self.control_plane, self.store, self.client)


@pytest.fixture
async def talk(control_plane: FakeControlPlane, tmp_path: Path) -> AsyncIterator[Conversation]:
    key = SigningKey.generate()
    control_plane.key = key.public
    control_plane.next_wait_s = 0.0
    store = Store(tmp_path / "agent.sqlite")
    auth = SignatureAuth(control_plane.identity, key, SystemClock())
    async with ControlPlaneClient([control_plane.url], auth) as client:
        yield Conversation(control_plane, store, client)
    store.close()


async def test_the_first_poll_asks_for_the_lease_without_waiting(talk: Conversation) -> None:
    await talk.loop.poll()
    (request,) = talk.control_plane.requests
    assert (request.epoch, request.seen_generation, request.wait_s) == (None, 0, 0.0)
    assert (talk.executor.state.epoch, talk.executor.state.standing) == (1, Standing.LEADING)


async def test_the_next_poll_shows_the_epoch_and_the_generation(talk: Conversation) -> None:
    talk.control_plane.desired = examples.desired(4)
    await talk.loop.poll()
    await talk.loop.poll()
    request = talk.control_plane.requests[-1]
    assert (request.epoch, request.seen_generation) == (1, 4)
    assert talk.driven == [4]


async def test_desired_state_is_stored_when_it_is_driven(talk: Conversation) -> None:
    talk.control_plane.desired = examples.desired(4)
    await talk.loop.poll()
    assert talk.store.load().desired == examples.desired(4)


async def test_a_new_boot_takes_the_next_epoch(talk: Conversation) -> None:
    await talk.loop.poll()
    boot = talk.next_boot()
    await boot.loop.poll()
    assert boot.executor.state.epoch == 2
    assert len({request.boot_id for request in talk.control_plane.requests}) == 2


async def test_a_lease_that_moved_on_is_asked_for_without_an_epoch(talk: Conversation) -> None:
    await talk.loop.poll()
    talk.control_plane.epoch = 5
    assert await talk.loop.poll() < 1
    assert talk.executor.state.standing is Standing.ASKING
    talk.control_plane.boot_id = ""
    await talk.loop.poll()
    assert talk.control_plane.requests[-1].epoch is None
    assert (talk.executor.state.epoch, talk.executor.state.standing) == (6, Standing.LEADING)


async def test_a_superseded_boot_asks_slowly_and_keeps_its_epoch(talk: Conversation) -> None:
    await talk.loop.poll()
    talk.control_plane.superseded_by = "another boot"
    assert await talk.loop.poll() >= 0.8 * sync.SUPERSEDED_RETRY_S
    assert talk.executor.state.standing is Standing.SUPERSEDED
    await talk.loop.poll()
    assert talk.control_plane.requests[-1].epoch == 1


async def test_an_answer_of_a_lower_epoch_changes_nothing(talk: Conversation) -> None:
    talk.control_plane.epoch = 7
    await talk.loop.poll()
    restored = talk.next_boot()
    talk.control_plane.epoch, talk.control_plane.desired = 2, examples.desired(9)
    assert await restored.loop.poll() > sync.MIN_PAUSE_S
    assert (restored.executor.state.epoch, restored.executor.state.generation, restored.driven) == (8, 0, [])


async def test_a_lower_generation_is_refused_without_asking_again_at_once(talk: Conversation) -> None:
    talk.control_plane.desired = examples.desired(9)
    await talk.loop.poll()
    talk.control_plane.desired = examples.desired(3)
    first, second = await talk.loop.poll(), await talk.loop.poll()
    assert talk.driven == [9]
    assert second > first > sync.MIN_PAUSE_S


async def test_away_it_pauses_longer_and_longer_up_to_a_bound(talk: Conversation) -> None:
    talk.control_plane.is_away = True
    pauses_s = [await talk.loop.poll() for _ in range(9)]
    assert 0.35 <= pauses_s[0] <= 0.65
    assert 0.7 <= pauses_s[1] <= 1.3
    assert 4.9 <= pauses_s[-1] <= 9.1


async def test_after_an_absence_the_pauses_start_over(talk: Conversation) -> None:
    talk.control_plane.is_away = True
    for _ in range(5):
        await talk.loop.poll()
    talk.control_plane.is_away = False
    assert await talk.loop.poll() == sync.MIN_PAUSE_S
    talk.control_plane.is_away = True
    assert await talk.loop.poll() <= 0.65


async def test_a_long_absence_is_two_lines_in_the_log(talk: Conversation) -> None:
    with capture_logs() as logs:
        for is_away in (False, True, True, True, False, False):
            talk.control_plane.is_away = is_away
            await talk.loop.poll()
    seen = [line["event"] for line in logs if line["event"].startswith("control_plane")]
    assert seen == ["control_plane_away", "control_plane_back"]


async def test_each_absence_is_told(talk: Conversation) -> None:
    with capture_logs() as logs:
        for is_away in (True, False, True):
            talk.control_plane.is_away = is_away
            await talk.loop.poll()
    assert [line["event"] for line in logs].count("control_plane_away") == 2


async def test_a_superseded_boot_tells_of_an_absence_too(talk: Conversation) -> None:
    await talk.loop.poll()
    talk.control_plane.superseded_by = "another boot"
    with capture_logs() as logs:
        for is_away in (True, False, True):
            talk.control_plane.is_away = is_away
            await talk.loop.poll()
    assert [line["event"] for line in logs].count("control_plane_away") == 2


async def test_an_absence_forgets_nothing(talk: Conversation) -> None:
    talk.control_plane.desired = examples.desired(4)
    await talk.loop.poll()
    before = talk.executor.state
    talk.control_plane.is_away = True
    await talk.loop.poll()
    assert talk.executor.state == before


async def test_a_wrong_signature_is_refused_and_changes_nothing(talk: Conversation) -> None:
    talk.control_plane.key = SigningKey.generate().public
    assert await talk.loop.poll() > sync.MIN_PAUSE_S
    assert talk.executor.state.standing is Standing.ASKING
    assert talk.control_plane.requests == []


@pytest.fixture
async def enrolled(control_plane: FakeControlPlane, tmp_path: Path) -> AsyncIterator[Conversation]:
    """A sync loop of an agent that enrolled with a token, and could again."""
    token_file = tmp_path / "token"
    token_file.write_text(control_plane.token)
    urls, key, clock = [control_plane.url], identity.load_key(tmp_path), SystemClock()
    given = await identity.enrol(urls, tmp_path, key, token_file)
    control_plane.next_wait_s = 0.0
    store = Store(tmp_path / "agent.sqlite")
    async with ControlPlaneClient(urls, SignatureAuth(given.identity, key, clock)) as client:
        yield Conversation(
            control_plane, store, client, renew=identity.Renewal(client, clock, urls, tmp_path, key, token_file))
    store.close()


async def test_an_agent_that_is_not_known_says_so_and_forgets_nothing(enrolled: Conversation) -> None:
    enrolled.control_plane.desired = examples.desired(4)
    await enrolled.loop.poll()
    assert enrolled.loop.problem == ""
    before = enrolled.executor.state
    enrolled.control_plane.identity, enrolled.control_plane.key = "identity_other", None
    assert await enrolled.loop.poll() > sync.MIN_PAUSE_S
    assert "the control plane does not know this identity" in enrolled.loop.problem
    assert "MERIDIAN_ENROLMENT_TOKEN_FILE" in enrolled.loop.problem
    assert enrolled.executor.state == before


async def test_an_agent_that_is_not_known_enrols_again_with_a_new_token(
        enrolled: Conversation, tmp_path: Path) -> None:
    fake = enrolled.control_plane
    fake.identity, fake.key, fake.token = "identity_other", None, ids.new_secret("enrol_meridian_test")
    await asyncio.to_thread((tmp_path / "token").write_text, fake.token)
    assert await enrolled.loop.poll() == sync.MIN_PAUSE_S
    assert await enrolled.loop.poll() == sync.MIN_PAUSE_S
    assert (enrolled.loop.problem, enrolled.executor.state.standing) == ("", Standing.LEADING)
    kept = identity.load_identity(tmp_path)
    assert kept is not None
    assert kept.identity == "identity_other"
    assert fake.key is not None
    assert fake.key.text == identity.load_key(tmp_path).public.text


async def test_an_agent_does_not_show_a_token_again_that_was_used_or_refused(
        enrolled: Conversation, tmp_path: Path) -> None:
    fake = enrolled.control_plane
    fake.identity, fake.key = "identity_other", None
    await enrolled.loop.poll()
    assert fake.key is None  # the token of its enrolment would have been taken
    await asyncio.to_thread((tmp_path / "token").write_text, stranger := ids.new_secret("enrol_meridian_test"))
    await enrolled.loop.poll()
    fake.token = stranger  # refused once, so not shown again
    assert await enrolled.loop.poll() > sync.MIN_PAUSE_S
    assert fake.key is None


async def test_an_agent_does_not_become_another_fleets(enrolled: Conversation, tmp_path: Path) -> None:
    fake = enrolled.control_plane
    fake.identity, fake.key, fake.token = "identity_other", None, ids.new_secret("enrol_meridian_test")
    fake.fleet_id = "other-a"
    await asyncio.to_thread((tmp_path / "token").write_text, fake.token)
    assert await enrolled.loop.poll() > sync.MIN_PAUSE_S
    kept = identity.load_identity(tmp_path)
    assert kept is not None
    assert (kept.identity, kept.subject) == ("identity_test", "test-a")


async def test_a_poll_waits_as_long_as_it_was_told(talk: Conversation) -> None:
    talk.control_plane.next_wait_s = 0.4
    await talk.loop.poll()
    before_s = time.monotonic()
    await talk.loop.poll()
    assert 0.3 < time.monotonic() - before_s < 2


async def test_a_poll_never_waits_longer_than_the_agent_allows(talk: Conversation) -> None:
    talk.control_plane.next_wait_s = 3_600.0
    await talk.loop.poll()
    poll = asyncio.create_task(talk.loop.poll())
    await asyncio.to_thread(talk.control_plane.wait_for, lambda request: request.wait_s > 0)
    assert talk.control_plane.requests[-1].wait_s == sync.MAX_WAIT_S
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)


def seen(phase: DeploymentPhase, inflight: int = 0) -> ObservedDeployment:
    return examples.observed(inflight).model_copy(update={"phase": phase})


async def waiting(talk: Conversation) -> "asyncio.Task[float]":
    """A poll that waits at the control plane."""
    talk.control_plane.next_wait_s = 10.0
    talk.look(seen(DeploymentPhase.READY))
    await talk.loop.poll()
    poll = asyncio.create_task(talk.loop.poll())
    await asyncio.to_thread(talk.control_plane.wait_for, lambda request: request.wait_s == 10.0)
    return poll


async def test_a_change_of_phase_cuts_the_poll_and_is_told_at_once(talk: Conversation) -> None:
    poll = await waiting(talk)
    talk.look(seen(DeploymentPhase.DEGRADED))
    async with asyncio.timeout(2):
        assert await poll == sync.MIN_PAUSE_S
    again = asyncio.create_task(talk.loop.poll())
    told = await asyncio.to_thread(
        talk.control_plane.wait_for, lambda request: request.deployments[0].phase is DeploymentPhase.DEGRADED)
    assert told.epoch == 1
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_a_change_of_the_counts_alone_does_not_cut_the_poll(talk: Conversation) -> None:
    poll = await waiting(talk)
    talk.look(seen(DeploymentPhase.READY, inflight=7))
    await asyncio.sleep(0.2)
    assert not poll.done()
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)


async def test_new_desired_state_ends_the_wait(talk: Conversation) -> None:
    poll = await waiting(talk)
    talk.control_plane.want(examples.desired(6))
    async with asyncio.timeout(2):
        await poll
    assert talk.driven == [6]


async def test_a_cancelled_poll_leaves_nothing_running(talk: Conversation) -> None:
    poll = await waiting(talk)
    poll.cancel()
    await asyncio.gather(poll, return_exceptions=True)
    assert len(asyncio.all_tasks()) == 1


async def test_a_finished_drain_is_told_at_once_and_until_it_is_heard(talk: Conversation) -> None:
    talk.look(seen(DeploymentPhase.READY, inflight=3))
    await talk.loop.poll()
    talk.control_plane.order(examples.drain(epoch=1))
    await talk.loop.poll()
    talk.look(seen(DeploymentPhase.READY, inflight=3))
    await talk.loop.poll()
    assert talk.control_plane.outcomes == {"command_1": CommandState.ACCEPTED}
    talk.look(seen(DeploymentPhase.READY))
    talk.control_plane.is_away = True
    await talk.loop.poll()
    talk.control_plane.is_away = False
    await talk.loop.poll()
    assert talk.control_plane.outcomes == {"command_1": CommandState.SUCCEEDED}
    assert talk.executor.state.acks() == []


async def test_polls_are_short_while_a_command_is_open(talk: Conversation) -> None:
    talk.control_plane.next_wait_s = 10.0
    talk.look(seen(DeploymentPhase.READY, inflight=3))
    talk.control_plane.order(examples.drain(epoch=1))
    await talk.loop.poll()
    poll = asyncio.create_task(talk.loop.poll())
    await asyncio.to_thread(talk.control_plane.wait_for, lambda request: bool(request.acks))
    assert talk.control_plane.requests[-1].wait_s == sync.BUSY_WAIT_S
    await poll


async def test_an_accepted_command_is_finished_by_the_next_boot(talk: Conversation) -> None:
    talk.look(seen(DeploymentPhase.READY, inflight=3))
    await talk.loop.poll()
    talk.control_plane.order(examples.drain(epoch=1))
    await talk.loop.poll()
    boot = talk.next_boot()
    boot.look(seen(DeploymentPhase.READY))
    await boot.loop.poll()
    assert talk.control_plane.outcomes == {"command_1": CommandState.SUCCEEDED}


async def restored(talk: Conversation, signer: SigningKey | None) -> Conversation:
    """The next boot, which trusts `KEY`, before a control plane whose restored database has seen less than it."""
    for _ in range(3):
        await talk.next_boot().loop.poll()
    before = talk.next_boot()
    await before.loop.poll()
    assert before.executor.state.epoch == 4
    control_plane = talk.control_plane
    control_plane.boot_id, control_plane.epoch, control_plane.lineage = "", 0, 2
    order = Recovery(lineage=2, recovered_at_s=0.0, recovered_by="operator:olga", reason="restored")
    control_plane.recovery = signer and SignedRecovery.seal(order, signer)
    boot = Conversation(control_plane, talk.store, talk.client, keys=[KEY.public])
    await boot.loop.poll()
    return boot


async def test_a_signed_recovery_starts_the_fences_anew(talk: Conversation) -> None:
    boot = await restored(talk, KEY)
    assert (boot.executor.state.lineage, boot.executor.state.epoch) == (2, 1)
    assert (await boot.loop.poll(), boot.loop.problem) == (sync.MIN_PAUSE_S, "")
    assert (talk.control_plane.requests[-1].lineage, talk.control_plane.requests[-1].epoch) == (2, 1)


@pytest.mark.parametrize("signer", [None, SigningKey.generate()])
async def test_a_lineage_that_nobody_signed_or_a_stranger_changes_nothing(
        talk: Conversation, signer: SigningKey | None) -> None:
    boot = await restored(talk, signer)
    assert (boot.executor.state.lineage, boot.executor.state.epoch) == (1, 4)


async def test_after_an_outage_an_agent_is_back_within_its_lease_and_not_in_step(
        talk: Conversation) -> None:
    talk.control_plane.is_away = True
    pauses = [await talk.loop.poll() for _ in range(30)][5:]
    assert all(sync.MAX_RETRY_S * 0.7 <= pause_s < min(10, LEASE_TTL_S) for pause_s in pauses)
    assert max(pauses) - min(pauses) > 1
