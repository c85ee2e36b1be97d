"""Each rule, shown a thing that it forbids and a thing that it allows: a check that cannot fail is no check."""

import pytest

from tests.lint import effects, shape
from tests.lint.sources import Rule, Source
from tests.lint.states import states_with_tables

PATH = "control_plane/routing/service.py"
UNFINISHED = "TO" + "DO"

# rule, path, what it forbids
FORBIDDEN: list[tuple[Rule, str, str]] = [
    (shape.short_files, PATH, "x = 1\n" * 501),
    (shape.short_functions, PATH, "def f():\n" + "    x = 1\n" * 80),
    (shape.short_functions, PATH, "class A:\n    async def f(self):\n" + "        x = 1\n" * 80),
    (shape.telling_names, "control_plane/utils.py", ""),
    (shape.telling_names, "edge_api/common/keys.py", ""),
    (shape.telling_names, "edge_api/stream_helpers.py", ""),
    (shape.telling_names, "fleet_agent/process_manager.py", ""),
    (shape.docstrings, PATH, "x = 1"),
    (shape.docstrings, PATH, '"""Module."""\nclass Thing:\n    x = 1'),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept:\n    pass"),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept Exception:\n    pass"),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept (ValueError, BaseException) as error:\n    pass"),
    (shape.plain_log_events, PATH, 'log.info(f"drained {name}")'),
    (shape.plain_log_events, PATH, 'self._log.error("drained %s" % name)'),
    (shape.plain_log_events, PATH, 'log.info("the datacenter is drained")'),
    (shape.plain_log_events, PATH, 'log.info("Drained")'),
    (shape.plain_log_events, PATH, 'log.warning(event, error=1)'),
    (shape.plain_log_events, PATH, 'log.info("drained" if done else "not drained")'),
    (shape.plain_log_events, PATH, 'log.info("drained_%s", name)'),
    (shape.finished, PATH, f"x = 1  # {UNFINISHED} later"),
    (shape.finished, PATH, "# FIX" + "ME"),
    (shape.units_in_names, PATH, "def f(timeout: float) -> None: ..."),
    (shape.units_in_names, PATH, "class A:\n    deadline: int | None = None"),
    (shape.units_in_names, PATH, "cost_usd: float = 0.0"),
    (effects.injected_clock, PATH, "import time\ntime.time()"),
    (effects.injected_clock, PATH, "import time as t\nt.monotonic_ns()"),
    (effects.injected_clock, PATH, "from time import perf_counter\nperf_counter()"),
    (effects.injected_clock, PATH, "from datetime import datetime\ndatetime.now(UTC)"),
    (effects.injected_clock, PATH, "import datetime\ndatetime.datetime.utcnow()"),
    (effects.injected_clock, PATH, "from datetime import date\nd = date.today()"),
    (effects.injected_clock, PATH, "import random\nrandom.random()"),
    (effects.injected_clock, PATH, "from random import choice\nchoice([1])"),
    (effects.injected_clock, PATH, "import secrets\nsecrets.token_hex()"),
    (effects.injected_clock, PATH, "import uuid\nuuid.uuid4()"),
    (effects.injected_clock, PATH, "from uuid import uuid4\nkey = Field(default_factory=uuid4)"),
    (effects.injected_clock, PATH, "import os\nos.urandom(8)"),
    (effects.sql_in_its_place, PATH, "from sqlalchemy import select"),
    (effects.sql_in_its_place, PATH, "from sqlalchemy.dialects.postgresql import insert"),
    (effects.sql_in_its_place, PATH, "import sqlalchemy as sa\nsa.text('x')"),
    (effects.sql_in_its_place, PATH, "await connection.execute('SELECT 1')"),
    (effects.sql_in_its_place, PATH, "f('UPDATE teams SET name = 1')"),
    (effects.sql_in_its_place, "control_plane/app.py", "await connection.execute('update teams set name = 1')"),
    (effects.sql_in_its_place, "control_plane/app.py", "await connection.fetch(f'select {x}')"),
    (effects.commit_in_its_place, PATH, "await session.commit()"),
    (effects.no_network_in_a_session, PATH,
     "async def f(db, client):\n    async with db.begin() as session:\n        await client.post('/x')"),
    (effects.no_network_in_a_session, PATH,
     "async def f(self):\n    async with self._db.read() as s:\n        if s:\n            await self._redis.get('x')"),
    (effects.no_network_in_a_session, PATH,
     "import asyncio\nasync def f(db):\n    async with db.begin():\n        await asyncio.sleep(1)"),
    (effects.no_clients_at_import, PATH, "import httpx\nclient = httpx.AsyncClient()"),
    (effects.no_clients_at_import, PATH,
     "from sqlalchemy.ext.asyncio import create_async_engine\nengine = create_async_engine('x')"),
]

# rule, path, what it allows
ALLOWED: list[tuple[Rule, str, str]] = [
    (shape.short_files, PATH, "x = 1\n" * 500),
    (shape.short_functions, PATH, "def f():\n" + "    x = 1\n" * 79),
    (shape.telling_names, "control_plane/commonwealth.py", ""),
    (shape.docstrings, PATH, '"""Module."""\nclass Thing:\n    """A thing."""\nclass _Own:\n    x = 1'),
    (shape.docstrings, "tests/unit/__init__.py", ""),
    (shape.docstrings, "tests/unit/test_x.py", '"""Module."""\nclass TestDrain:\n    x = 1'),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept Exception:  # the loop must live on; it is logged\n    pass"),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept Exception:\n    # the loop must live on\n    pass"),
    (shape.narrow_excepts, PATH, "try:\n    f()\nexcept ValueError:\n    pass"),
    (shape.plain_log_events, PATH, 'log.info("drained", datacenter=f"{region}-1")'),
    (shape.plain_log_events, PATH, 'log.info("drained" if done else "still_draining", count=2)'),
    (shape.plain_log_events, PATH, 'parser.error(f"no file {path}")'),
    (shape.finished, PATH, "# a method that does what it says"),
    (shape.units_in_names, PATH, "def f(timeout_s: float, timeout: httpx.Timeout) -> None: ..."),
    (shape.units_in_names, PATH, "cost_usd: Decimal = Decimal(0)"),
    (effects.injected_clock, "control_plane/contracts/clock.py", "import time\ntime.time()"),
    (effects.injected_clock, "tests/bench/start.py", "import time\ntime.time()"),
    (effects.injected_clock, PATH, "import asyncio, time\nasyncio.sleep(1)\nloop.time()\ntime.sleep(1)"),
    (effects.injected_clock, PATH, "import secrets\nsecrets.compare_digest(a, b)"),
    (effects.injected_clock, PATH, "from datetime import datetime\ndatetime.fromtimestamp(1, UTC)"),
    (effects.injected_clock, PATH, "def f(random, secrets):\n    return random.x, secrets.y"),
    (effects.sql_in_its_place, "control_plane/routing/repository.py", "from sqlalchemy import select"),
    (effects.sql_in_its_place, "control_plane/db.py", "from sqlalchemy import text"),
    (effects.sql_in_its_place, PATH, "from sqlalchemy.exc import DBAPIError"),
    (effects.sql_in_its_place, PATH, "from sqlalchemy import func\nrow.at = func.clock_timestamp()"),
    (effects.sql_in_its_place, PATH, "found = await session.execute(statement)"),
    (effects.sql_in_its_place, PATH, "log.info('select a datacenter'); say('Update the fleet')"),
    (effects.commit_in_its_place, "control_plane/db.py", "await session.commit()"),
    (effects.commit_in_its_place, "fleet_agent/store.py", "connection.commit()"),
    (effects.no_network_in_a_session, PATH,
     "async def f(db, client):\n    async with db.begin() as session:\n        await session.get(Team, 1)\n"
     "    await client.post('/x')"),
    (effects.no_clients_at_import, PATH, "import httpx\ndef f():\n    return httpx.AsyncClient()"),
]


@pytest.mark.parametrize(("rule", "path", "text"), FORBIDDEN)
def test_a_rule_finds_what_it_forbids(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_a_rule_lets_the_rest_be(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text))) == []


def test_a_fault_says_where_it_is() -> None:
    [fault] = effects.commit_in_its_place(Source(PATH, "x = 1\nsession.commit()"))
    assert str(fault) == f"{PATH}:2: commit() belongs to db.py"


STATE = '"""S."""\nfrom enum import StrEnum\nclass JobState(StrEnum):\n    NEW = "new"\n    DONE = "done"\n'


def test_a_state_without_a_table_is_found() -> None:
    assert list(states_with_tables([Source(PATH, STATE)]))


def test_a_state_with_a_table_that_misses_a_member_is_found() -> None:
    table = "MOVES = {JobState.NEW: {JobState.NEW}}\n"
    assert list(states_with_tables([Source(PATH, STATE + table)]))


def test_a_state_with_a_whole_table_in_any_module_is_right() -> None:
    table = "from x import JobState\nMOVES: dict = {JobState.NEW: {JobState.DONE}, JobState.DONE: set()}\n"
    assert list(states_with_tables([Source(PATH, STATE), Source("control_plane/routing/machine.py", table)])) == []


def test_a_table_may_be_of_moves_by_event() -> None:
    table = "from x import JobState, E\nMOVES = {(JobState.NEW, E.END): JobState.DONE}\n"
    assert list(states_with_tables([Source(PATH, STATE + table)])) == []


def test_what_is_no_state_needs_no_table() -> None:
    assert list(states_with_tables([Source(PATH, STATE.replace("JobState", "JobKind"))])) == []
