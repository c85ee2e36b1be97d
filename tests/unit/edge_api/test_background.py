"""Background tasks."""

import asyncio

import pytest
from structlog.testing import capture_logs

from edge_api.background import running
from edge_api.metrics import Metrics


async def test_a_task_that_fails_is_started_again_and_disturbs_no_other() -> None:
    runs, metrics, steady = [], Metrics(), asyncio.Event()

    async def failing() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ValueError("a bug")
        await asyncio.Event().wait()

    async def other() -> None:
        steady.set()
        await asyncio.Event().wait()

    with capture_logs() as logs:
        async with running({"failing": failing, "other": other}, metrics, 0.01), asyncio.timeout(5):
            while len(runs) < 3 or not steady.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [line["task"] for line in logs] == ["failing", "failing"]
    assert b'meridian_edge_background_faults_total{task="failing"} 2.0' in metrics.text()


async def test_tasks_end_with_the_block() -> None:
    ended = asyncio.Event()

    async def task() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running({"task": task}, Metrics()):
        await asyncio.sleep(0)
    assert ended.is_set()


async def test_an_error_in_the_block_is_not_hidden() -> None:
    async def task() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012
        async with running({"task": task}, Metrics()):
            await asyncio.sleep(0)
            raise KeyError("x")
    assert isinstance(raised.value.exceptions[0], KeyError)
