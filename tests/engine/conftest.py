"""One real cluster for the module that needs it, whole again before each test."""

from collections.abc import Iterator

import pytest

from tests.engine.cluster import Cluster, cluster, request, scripted
from tests.ports import claim_ports


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One prefill and two decode workers, a frontend and NATS."""
    with cluster(request(tmp_path_factory.mktemp("cluster"), claim_ports())) as running:
        yield running


@pytest.fixture
def running(started: Cluster) -> Cluster:
    """The module's cluster with every process alive."""
    started.start()
    started.wait_model()
    return started


@pytest.fixture(scope="module")
def datacenters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Two independent clusters whose workers say what they are told to."""
    base = claim_ports(2)
    with (cluster(scripted(tmp_path_factory.mktemp("a"), base)) as first,
          cluster(scripted(tmp_path_factory.mktemp("b"), base + 100)) as second):
        yield first, second
