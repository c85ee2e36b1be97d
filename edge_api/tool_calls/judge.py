"""Has answers' tool calls judged, beside the hot path: a bounded queue, one process that judges, and the counts.

An answer that finds the queue full, is too long, or whose judgement takes too long stays unjudged. Those are counted by
themselves and are no part of any rate.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog
from msgspec import Raw, json

from edge_api.metrics import Metrics
from edge_api.tool_calls.child import LENGTH_BYTES, LETTERS
from edge_api.tool_calls.verdict import Called, Verdict

COMMAND = (sys.executable, "-P", "-m", "edge_api.tool_calls.child")
MAX_WAITING = 1_024
MAX_WAITING_BYTES = 16 << 20
MAX_CASE_BYTES = 1 << 20
DEADLINE_S = 10.0
MAX_NAMES = 1_000
MAX_DEADLY = 1_024
OTHER = "other"

VERDICTS = {letter: verdict for verdict, letter in LETTERS.items()}

log = structlog.get_logger()


class _Waiting(NamedTuple):
    """One answer: where it came from, its case as the child reads it, and what tells its tools from others."""

    model_id: str
    datacenter_id: str
    case: bytes
    tools: int


class CallJudge:
    """Owns the queue and the process, which starts with the first case. `judged` hears of each answer that was judged:
    its model, its datacenter, and whether it is wrong."""

    def __init__(self, metrics: Metrics, judged: Callable[[str, str, bool], None],
                 command: Sequence[str] = COMMAND) -> None:
        self._counter, self._judged, self._command = metrics.called_answers, judged, command
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(MAX_WAITING)
        self._waiting_bytes = 0
        self._child: asyncio.subprocess.Process | None = None
        self._names: set[str] = set()
        self._deadly: set[int] = set()

    def take(self, model_id: str, datacenter_id: str, tools: Sequence[Raw], calls: Sequence[Called]) -> None:
        """An answer ended with tool calls. They are judged later, or not at all."""
        size = sum(map(len, tools)) + sum(len(call.arguments) for call in calls)
        if size > MAX_CASE_BYTES or self._waiting_bytes + size > MAX_WAITING_BYTES or self._queue.full():
            self._tell(model_id, datacenter_id, Verdict.UNJUDGED)
            return
        offered = b",".join(tools)
        case = b"[[%b],%b]" % (offered, json.encode(calls))
        self._waiting_bytes += len(case)
        self._queue.put_nowait(_Waiting(model_id, datacenter_id, case, hash(offered)))

    async def run(self) -> None:
        """Has one case after the other judged, for ever."""
        try:
            while True:
                waiting = await self._queue.get()
                self._waiting_bytes -= len(waiting.case)
                self._tell(waiting.model_id, waiting.datacenter_id, await self._verdict(waiting))
        finally:
            await self._end_child()

    async def _verdict(self, waiting: _Waiting) -> Verdict:
        if waiting.tools in self._deadly:
            return Verdict.UNJUDGED
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._ask(waiting.case)
        except (OSError, EOFError, KeyError, TimeoutError) as error:
            log.warning("tool_calls_not_judged", model=waiting.model_id, error=type(error).__name__)
            await self._end_child()
            if isinstance(error, EOFError):  # one client with such a schema would keep others from being judged
                self._avoid(waiting.tools)
            return Verdict.UNJUDGED

    async def _ask(self, case: bytes) -> Verdict:
        child = self._child
        if child is None:
            child = self._child = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, env={})  # what this edge was started with holds secrets
        if child.stdin is None or child.stdout is None:
            raise BrokenPipeError
        child.stdin.write(len(case).to_bytes(LENGTH_BYTES) + case)
        await child.stdin.drain()
        return VERDICTS[await child.stdout.readexactly(1)]

    def _avoid(self, tools: int) -> None:
        """The process died of these."""
        if len(self._deadly) >= MAX_DEADLY:
            self._deadly.clear()
        self._deadly.add(tools)

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    def _tell(self, model_id: str, datacenter_id: str, verdict: Verdict) -> None:
        if len(self._names) < MAX_NAMES:
            self._names.add(model_id)  # an edge by itself serves any model that its clients name
        self._counter.labels(model_id if model_id in self._names else OTHER, datacenter_id, verdict).inc()
        if verdict is not Verdict.UNJUDGED:
            self._judged(model_id, datacenter_id, verdict is Verdict.WRONG)
