"""What the tests of this folder ask the stack with; its clients are closed after each test."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from tests.e2e.stack import LocalStack


@pytest.fixture
async def client(stack: LocalStack) -> AsyncIterator[AsyncOpenAI]:
    """The unmodified SDK at the first edge; it retries nothing, so that a failure is seen."""
    async with AsyncOpenAI(base_url=stack.facts["edge_url"], api_key=stack.facts["api_key"], max_retries=0) as client:
        yield client
