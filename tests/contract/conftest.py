"""What the unmodified clients ask: the whole stack as one of its teams, and one edge before a scripted engine."""

from collections.abc import Iterator

import pytest

from tests.contract.clients import Clients, clients_of
from tests.contract.guests import Guest, invite
from tests.contract.scripted import ScriptedEdge, scripted_edge
from tests.e2e.stack import LocalStack


@pytest.fixture(scope="module")
def guest(running_stack: LocalStack) -> Guest:
    """A team that nothing limits."""
    running_stack.settle()
    return invite(running_stack)


@pytest.fixture
def clients(guest: Guest) -> Iterator[Clients]:
    """The SDKs with the guest's key."""
    with clients_of(guest.url, guest.key) as clients:
        yield clients


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedEdge]:
    """An edge before a scripted engine."""
    with scripted_edge(tmp_path_factory.mktemp("scripted")) as edge:
        yield edge


@pytest.fixture
def scripted_clients(scripted: ScriptedEdge) -> Iterator[Clients]:
    """The SDKs at the edge before the scripted engine."""
    with clients_of(scripted.url, scripted.key) as clients:
        yield clients
