"""One running stack for all tests of this folder; each test gets it settled, and its clients closed."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack, state_directory


@pytest.fixture(scope="session")
def running_stack() -> Iterator[LocalStack]:
    """Started once a session; afterwards it must end with Ctrl-C and leave nothing behind."""
    with state_directory() as state:
        stack = LocalStack(state)
        try:
            stack.start()
            yield stack
            assert stack.stop() == 0
            assert stack.processes() == []
        finally:
            stack.kill_all()


@pytest.fixture
def stack(running_stack: LocalStack) -> LocalStack:
    """The stack, with every datacenter ready and no operation under way."""
    running_stack.settle()
    return running_stack


@pytest.fixture
async def client(stack: LocalStack) -> AsyncIterator[AsyncOpenAI]:
    """The unmodified SDK at the first edge; it retries nothing, so that a failure is seen."""
    async with AsyncOpenAI(base_url=stack.facts["edge_url"], api_key=stack.facts["api_key"], max_retries=0) as client:
        yield client
