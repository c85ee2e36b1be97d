"""One running stack for all tests of this folder; each test gets it settled, and its clients closed."""

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Started once a session; afterwards it must end with Ctrl-C and leave nothing behind."""
    state = tmp_path_factory.mktemp("stack", numbered=True) / "state"
    for parent in (state.parent, state.parent.parent, state.parent.parent.parent):
        parent.chmod(0o711)  # Postgres runs as another account when this is root
    stack = LocalStack(state)
    stack.start()
    yield stack
    assert stack.stop() == 0
    assert stack.processes() == []


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
