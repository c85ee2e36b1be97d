"""`meridian agent`: settings, lock, identity, store, then the agent until a signal ends it.

SIGTERM and SIGINT end the agent and leave its engine serving, unless MERIDIAN_STOP_ENGINE_ON_EXIT says otherwise, so
that an agent can be upgraded under load. What cannot work ends with exit code 1 and one line that says what to do.
"""

import asyncio
import fcntl
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import structlog

from control_plane.contracts import logs
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.enrolment import EnrolAnswer
from control_plane.contracts.signing import SigningKey
from control_plane.contracts.transport import ControlPlaneClient, SignatureAuth
from fleet_agent import health, identity
from fleet_agent.agent import Agent
from fleet_agent.settings import Settings
from fleet_agent.store import Store, WrongStore

ENVIRONMENT_FAULTS = (OSError, sqlite3.Error)

log = structlog.get_logger()


class CannotStart(Exception):
    """The agent cannot work here; the message is for the person who started it."""


def main() -> None:
    """Runs the agent; ends the process with 0 after a signal and with 1 and one line when it cannot work.

    Raises:
        ValidationError: a setting is missing or wrong; the command line tells which.
    """
    settings = Settings()
    logs.configure("agent")
    try:
        with _sole_agent(settings.state_dir):
            asyncio.run(_run(settings))
    except (CannotStart, identity.CannotEnrol, WrongStore, *ENVIRONMENT_FAULTS) as fault:
        sys.exit(f"meridian agent: {fault}")
    except BaseExceptionGroup as group:
        if group.split(ENVIRONMENT_FAULTS)[1] is not None:
            raise  # a bug: its traceback is wanted
        sys.exit(f"meridian agent: cannot go on: {_first(group)}")


@contextmanager
def _sole_agent(state_dir: Path) -> Iterator[None]:
    """Holds the state directory's lock; the kernel lets go of it however this process ends.

    Raises:
        CannotStart: another agent holds it, or the directory cannot be used.
    """
    path = state_dir / "agent.lock"
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CannotStart(f"{path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotStart(f"another agent runs on {state_dir}; one agent for each state directory") from error
    try:
        yield
    finally:
        os.close(descriptor)


async def _run(settings: Settings) -> None:
    stop, clock = asyncio.Event(), SystemClock()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    board = health.Health(clock)
    try:
        port = health.serve(settings.host, settings.port, board)
    except OSError as error:
        raise CannotStart(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    key = identity.load_key(settings.state_dir)
    answer = await _enrol_unless(stop, settings, key)
    if answer is None:
        return
    store = Store(settings.state_dir / "agent.sqlite")
    auth = SignatureAuth(answer.identity, key, clock)
    log.info("agent_started", fleet=answer.subject, identity=answer.identity, health_port=port)
    try:
        async with (ControlPlaneClient(settings.control_plane_urls, auth) as control_plane,
                    httpx.AsyncClient(trust_env=False) as engine):
            renew = identity.Renewal(control_plane, clock, settings.control_plane_urls, settings.state_dir, key,
                                     settings.enrolment_token_file)
            board.agent = Agent(settings, answer, store, clock, control_plane, engine, renew)
            await board.agent.run(stop)
    finally:
        store.close()
    log.info("agent_stopped", engine="ended" if settings.stop_engine_on_exit else "left_serving")


async def _enrol_unless(stop: asyncio.Event, settings: Settings, key: SigningKey) -> EnrolAnswer | None:
    """The identity, or None if a signal came before the control plane answered."""
    known = identity.load_identity(settings.state_dir)
    if known is not None:
        return known
    enrolling = asyncio.ensure_future(identity.enrol(
        settings.control_plane_urls, settings.state_dir, key, settings.enrolment_token_file))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((enrolling, stopping), return_when=asyncio.FIRST_COMPLETED)
        return enrolling.result() if enrolling.done() else None
    finally:
        enrolling.cancel()
        stopping.cancel()
        await asyncio.gather(enrolling, stopping, return_exceptions=True)


def _first(faults: BaseException) -> BaseException:
    return _first(faults.exceptions[0]) if isinstance(faults, BaseExceptionGroup) else faults


if __name__ == "__main__":
    main()
