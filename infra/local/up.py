"""`meridian up`: starts the stack, shows where it is, keeps it alive until it is told to stop, stops it in order."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from control_plane.cli.errors import CommandFailed
from control_plane.contracts.clock import SystemClock
from infra.local import panel, processes
from infra.local.errors import StackRefused
from infra.local.layout import PRIVATE_UMASK, Layout, open_layout
from infra.local.leftovers import Record, end_leftovers
from infra.local.panel import PanelFacts
from infra.local.ports import require_free
from infra.local.progress import LastingConsole, Progress
from infra.local.settings import Settings
from infra.local.shape import Shape, check
from infra.local.stack import Stack
from infra.local.supervisor import PartEvent, PartState, Supervisor
from infra.local.watches import require_instances

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def up(state: Path, port_base: int, datacenters: int, edges: int, replicas: int, engine: str) -> None:
    """Runs a stack with its state in `state`; returns after Ctrl-C or SIGTERM, when every process has ended.

    Raises:
        CommandFailed: it could not be started; the message is one line that says what to do. Nothing is left running.
    """
    began_s = SystemClock().monotonic_s()
    shape = Shape(port_base, datacenters, edges, replicas, engine)
    console = LastingConsole(highlight=False)
    os.umask(PRIVATE_UMASK)
    try:
        check(shape)
        layout, lock = open_layout(state)
        with lock:
            asyncio.run(_Session(layout, shape, console, began_s).run())
    except StackRefused as refusal:
        raise CommandFailed(str(refusal), code="stack_refused") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            full = f"the disk of {state} is full; free some space and start again"
            raise CommandFailed(full, code="disk_full") from None
        raise


class _Session:
    """One run of a stack, from the first look at the ports to the last process's end."""

    def __init__(self, layout: Layout, shape: Shape, console: Console, began_s: float) -> None:
        self._layout, self._shape, self._console, self._began_s = layout, shape, console, began_s
        self._record = Record(layout.process_file)
        self._supervisor = Supervisor(self._record, self._tell)
        self._stop = asyncio.Event()
        self._stack: Stack | None = None

    async def run(self) -> None:
        """Starts, waits, stops. Raises StackRefused when it cannot start."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._asked_to_stop)
        await self._clear_the_way()
        try:
            with Progress(self._console) as progress:
                self._stack = stack = Stack(self._layout, self._shape, self._supervisor, progress)
                is_up = await self._unless_stopped(stack)
            if is_up:
                stack.write_local_file()
                self._say(panel.render(self._facts(stack)))
                await self._stop.wait()
        finally:
            await self._wind_down()

    async def _clear_the_way(self) -> None:
        found = await asyncio.to_thread(end_leftovers, self._layout.state, self._record.previous())
        if found:
            self._say(f"Ended {found} processes that an earlier start left behind.")
        require_free(processes.ports_in_use(self._shape))
        require_instances(self._shape.datacenter_count)

    async def _unless_stopped(self, stack: Stack) -> bool:
        """Whether the start came to its end before somebody asked to stop."""
        start, stop = asyncio.create_task(stack.start()), asyncio.create_task(self._stop.wait())
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if start.done():
            start.result()
            return True
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError, StackRefused):
            await start
        return False

    async def _wind_down(self) -> None:
        self._say("Stopping; Ctrl-C again stops at once.")
        await self._supervisor.stop()
        stray = await asyncio.to_thread(end_leftovers, self._layout.state, ())
        if stray:
            self._say(f"Ended {stray} processes that had not stopped with the part that started them.")
        if self._stack is not None:
            if self._layout.local_file.exists():
                self._write_local_file(self._stack)
            await self._stack.aclose()
        self._say("Stopped; the state is kept.")

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            self._supervisor.kill()
        self._stop.set()

    def _tell(self, event: PartEvent) -> None:
        if event.state is PartState.WAITING:
            log = self._layout.log(event.name)
            self._say(f"{event.name} ended ({event.fault}); it starts again in {event.delay_s:.1f} s. Its log: {log}")
        else:
            self._say(f"{event.name} serves again.")
            if self._stack is not None:
                self._write_local_file(self._stack)

    def _say(self, text: str) -> None:
        """Whoever read our words may be gone (a closed terminal, a broken pipe); the processes must still be kept."""
        with contextlib.suppress(OSError):
            self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _write_local_file(self, stack: Stack) -> None:
        try:
            stack.write_local_file()
        except OSError as error:
            self._say(f"{self._layout.local_file} could not be written: {error.strerror}")

    def _facts(self, stack: Stack) -> PanelFacts:
        return PanelFacts(
            shape=self._shape,
            api_key=stack.secrets.api_key,
            command=command_line(self._layout.state, Settings().state),
            python=_short(Path(sys.executable)),
            local_file=_short(self._layout.local_file),
            started_in_s=SystemClock().monotonic_s() - self._began_s,
        )


def command_line(state: Path, exported: Path | None) -> str:
    """How people call the command line for this state; `exported` is what ./dev has put into MERIDIAN_STATE."""
    if exported is None:
        return f"meridian --state {_short(state)}"
    return "./dev run" if exported.absolute() == state else f"./dev run --state {_short(state)}"


def _short(path: Path) -> str:
    """A path as it is shortest from the working directory."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
