"""Other specifications that real Dynamo has to take: what the options are called is only known to it."""

from pathlib import Path

import httpx
import psutil

from control_plane.contracts.deployment import Pool, PoolRole
from tests.engine.chat import ask
from tests.engine.cluster import Cluster, cluster, plan, request, wait_for
from tests.ports import claim_ports


def test_an_aggregated_deployment_with_every_option_serves(tmp_path: Path) -> None:
    wanted = request(
        tmp_path, claim_ports(), router={"mode": "round_robin", "session_affinity_ttl_s": 0, "migration_limit": 0},
        cache={"block_size": 32, "blocks_per_replica": 2048}, timing={"speedup_ratio": 5, "decode_speedup_ratio": 2},
        stop_grace_s=3)
    aggregated = wanted.deployments[0].model_copy(update={"pools": [Pool(role=PoolRole.AGGREGATED, replicas=1)]})
    with cluster(wanted.model_copy(update={"deployments": [aggregated]})) as running:
        wait_for(lambda: ask(running.url).status_code == 200, "an answer", 5)


def test_two_deployments_share_a_frontend_and_one_is_scaled_to_zero(tmp_path: Path) -> None:
    wanted = request(tmp_path, claim_ports(), decode=1)
    first = wanted.deployments[0]
    second = first.model_copy(update={"deployment_id": "other.glm", "model_id": "sim/other"})
    idle = first.model_copy(update={
        "deployment_id": "idle", "model_id": "sim/idle", "pools": [Pool(role=PoolRole.AGGREGATED, replicas=0)]})
    with cluster(wanted.model_copy(update={"deployments": [first, second, idle]})) as running:
        wait_for(lambda: _models(running) == ["sim/other", "sim/test"], "both models", 10)
        wait_for(lambda: ask(running.url, model="sim/other").status_code == 200, "the other's answer", 5)
        assert ask(running.url, model="sim/idle").status_code == 404


def test_two_clusters_side_by_side_stay_within_their_memory(tmp_path: Path) -> None:
    first = request(tmp_path / "a", claim_ports(2))
    with cluster(first) as one:
        with cluster(request(tmp_path / "b", first.port_base + 100)) as two:
            rss_mib = sum(psutil.Process(process.pid).memory_info().rss >> 20
                          for running in (one, two) for process in running.running.values())
        assert ask(one.url).status_code == 200
    assert rss_mib < 1000


def test_more_decode_workers_join_a_running_cluster(tmp_path: Path) -> None:
    base = claim_ports()
    with cluster(request(tmp_path, base, decode=1)) as running:
        before = dict(running.running)
        running.plan = plan(request(tmp_path, base, decode=2))
        running.start()
        running.wait_ready("test-glm-decode-1")
        assert before.items() <= running.running.items()
        assert {ask(running.url).status_code for _ in range(8)} == {200}


def _models(running: Cluster) -> list[str]:
    return sorted(model["id"] for model in httpx.get(f"{running.url}/v1/models", timeout=5).json()["data"])
