"""The launch plan: what runs, where it listens, and what makes a process a different one."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts.deployment import DesiredDeployment
from control_plane.contracts.launch import LaunchPlan, LaunchProcess
from engine import plan, ports
from engine.spec import DeploymentSpec, SpecRefused

SITE = plan.Site(state_dir=Path("/state"), host="127.0.0.1", port_base=9000, python=Path("/venv/bin/python"),
                 nats_server=Path("/venv/bin/nats-server"), release="1.6.1")
POOLS = (("prefill", 1), ("decode", 2))


def spec(name: str = "glm", pools: tuple[tuple[str, int], ...] = POOLS, model: str = "sim/glm",
         **engine: Any) -> DeploymentSpec:
    return DeploymentSpec.from_desired(DesiredDeployment.model_validate({
        "deployment_id": name, "generation": 1, "model_id": model, "context_window": 32_768,
        "pools": [{"role": role, "replicas": replicas} for role, replicas in pools],
        "engine": {"kind": "sim", **engine}}))


def build(*specs: DeploymentSpec, site: plan.Site = SITE, known: dict[str, int] | None = None,
          model: str = "sim-1") -> LaunchPlan:
    given = list(specs)
    assigned = ports.assign(plan.worker_names(given), known or {}, site.port_base)
    return plan.build(site, given, {s.deployment_id: site.state_dir / "models" / model for s in given}, assigned)


def digests(found: LaunchPlan) -> dict[str, str]:
    return {process.name: process.digest for process in found.processes}


def option(process: LaunchProcess, name: str) -> str:
    return process.argv[process.argv.index(name) + 1]


def named(found: LaunchPlan, name: str) -> LaunchProcess:
    return next(process for process in found.processes if process.name == name)


def test_a_cluster_is_nats_then_workers_then_the_frontend() -> None:
    assert [process.name for process in build(spec()).processes] == [
        "nats", "glm-prefill-0", "glm-decode-0", "glm-decode-1", "frontend"]


def test_the_grammar_service_stands_beside_the_frontend_once_it_is_installed() -> None:
    found = build(spec(), spec("b", model="sim/b"), site=replace(SITE, has_grammar=True))
    (grammar,) = [process for process in found.processes if process.name == "grammar"]
    assert grammar.argv[:4] == ["/venv/bin/python", "-I", "-m", "engine.grammar"]
    assert (option(grammar, "--host"), option(grammar, "--port")) == ("127.0.0.1", "9005")
    assert grammar.ready_url == "http://127.0.0.1:9005/healthz"
    assert {facts.grammar_url for facts in found.facts.values()} == {"http://127.0.0.1:9005"}


def test_without_it_no_edge_is_sent_there() -> None:
    found = build(spec())
    assert "grammar" not in [process.name for process in found.processes]
    assert found.facts["glm"].grammar_url is None


def test_each_deployment_has_its_facts() -> None:
    found = build(spec(), spec("b", pools=(("aggregated", 0),), model="sim/b"))
    assert set(found.facts) == {"glm", "b"}
    assert all(facts.identity for facts in found.facts.values())


def test_a_scripted_worker_gets_its_parsers_and_no_simulated_gpu() -> None:
    found = build(spec(pools=(("aggregated", 1),), kind="script", tool_parser="hermes"))
    worker = named(found, "glm-aggregated-0")
    assert worker.argv[3:5] == ["engine.awake", "engine.script.worker"]
    assert (option(worker, "--tool-call-parser"), option(worker, "--reasoning-parser")) == ("hermes", "glm45")
    assert json.loads(option(worker, "--structural-tag")) == {"scope": "always", "schema": "strict"}
    assert not {"--block-size", "--disaggregation-mode"} & set(worker.argv)


def test_tools_may_go_without_a_grammar() -> None:
    found = build(spec(pools=(("aggregated", 1),), kind="script", strict_tools=False))
    assert "--structural-tag" not in named(found, "glm-aggregated-0").argv


def test_frontends_let_text_leave_with_its_token_ids() -> None:
    assert named(build(spec()), "frontend").env["DYN_PARSER_VERSION"] == "1"


def test_everything_waits_for_the_event_plane_only() -> None:
    found = build(spec())
    assert [process.start_after for process in found.processes] == [[], *[["nats"]] * 4]


def test_workers_carry_their_deployment_and_role() -> None:
    found = build(spec())
    assert [(p.deployment_id, p.role) for p in found.processes] == [
        ("", ""), ("glm", "prefill"), ("glm", "decode"), ("glm", "decode"), ("", "")]


def test_a_fleet_without_deployments_runs_nothing() -> None:
    assert build().processes == []


def test_a_deployment_scaled_to_zero_keeps_its_frontend() -> None:
    found = build(spec(pools=(("aggregated", 0),)))
    assert [process.name for process in found.processes] == ["nats", "frontend"]


def test_gauges_and_ingress_are_the_frontends() -> None:
    found = build(spec())
    assert found.ingress_url == "http://127.0.0.1:9000"
    assert found.gauges.url == "http://127.0.0.1:9000/metrics"
    assert found.gauges.model_ready == "dynamo_frontend_model_ready"


def test_the_specification_reaches_the_workers() -> None:
    found = build(spec(cache={"block_size": 32, "blocks_per_replica": 4096},
                       timing={"speedup_ratio": 4, "decode_speedup_ratio": 2}))
    worker = named(found, "glm-decode-1")
    assert worker.argv[:5] == ["/venv/bin/python", "-I", "-m", "engine.awake", "dynamo.mocker"]
    assert option(worker, "--model-name") == "sim/glm"
    assert option(worker, "--model-path") == "/state/models/sim-1"
    assert option(worker, "--max-model-len") == "32768"
    assert option(worker, "--block-size") == "32"
    assert option(worker, "--num-gpu-blocks-override") == "4096"
    assert option(worker, "--speedup-ratio") == "4.0"
    assert option(worker, "--decode-speedup-ratio") == "2.0"
    assert option(worker, "--disaggregation-mode") == "decode"


def test_prefill_is_synchronous_because_the_bootstrap_way_counts_no_cached_tokens() -> None:
    assert not any("--bootstrap-ports" in process.argv for process in build(spec()).processes)


def test_an_aggregated_worker_is_started_as_one() -> None:
    assert option(named(build(spec(pools=(("aggregated", 1),))), "glm-aggregated-0"), "--disaggregation-mode") == "agg"


def test_the_router_reaches_the_frontend() -> None:
    found = build(spec(router={"mode": "round_robin", "session_affinity_ttl_s": 60, "migration_limit": 1}))
    frontend = named(found, "frontend")
    assert option(frontend, "--router-mode") == "round-robin"
    assert option(frontend, "--router-session-affinity-ttl-secs") == "60"
    assert option(frontend, "--router-session-affinity-mode") == "soft"
    assert option(frontend, "--migration-limit") == "1"


def test_session_affinity_can_be_off() -> None:
    frontend = named(build(spec(router={"session_affinity_ttl_s": 0})), "frontend")
    assert "--router-session-affinity-ttl-secs" not in frontend.argv


def test_every_listener_is_told_the_loopback_address() -> None:
    hosts = ("DYN_HTTP_HOST", "DYN_TCP_RPC_HOST", "DYN_HTTP_RPC_HOST", "DYN_EVENT_PLANE_HOST",
             "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_SYSTEM_HOST")
    nats, *dynamo = build(spec()).processes
    assert option(nats, "--addr") == "127.0.0.1"
    for process in dynamo:
        assert {process.env[host] for host in hosts} == {"127.0.0.1"}
        assert process.env["NATS_SERVER"] == "nats://127.0.0.1:9001"
        assert process.env["DYN_EVENT_PLANE"] == "nats"
        assert process.env["DYN_REQUEST_PLANE"] == "tcp"
        assert process.env["DYN_DISCOVERY_BACKEND"] == "file"


def test_no_process_may_reach_a_model_hub_or_leave_the_state_directory() -> None:
    for process in build(spec()).processes:
        assert process.env["HOME"].startswith("/state/")
        assert process.env["XDG_CACHE_HOME"].startswith("/state/")
        assert str(process.log_path).startswith("/state/logs/")
        if process.name != "nats":
            assert process.env["HF_HUB_OFFLINE"] == "1"
            assert process.env["DYN_FILE_KV"].startswith("/state/")


def test_no_two_processes_listen_on_the_same_port_of_the_block() -> None:
    found = build(spec(), spec("b", pools=(("aggregated", 5),), model="sim/b"))
    urls = [re.search(r":(\d+)/", process.ready_url) for process in found.processes]
    used = [int(url[1]) for url in urls if url] + [9001]
    assert len(used) == len(found.processes) + 1
    assert len(set(used)) == len(used)
    assert all(9000 <= port < 9100 and port != 9002 for port in used)


def test_a_worker_says_ready_on_its_own_port() -> None:
    worker = named(build(spec()), "glm-decode-1")
    assert worker.ready_url == f"http://127.0.0.1:{worker.env['DYN_SYSTEM_PORT']}/live"


def test_workers_that_decode_show_how_full_their_caches_are() -> None:
    found = build(spec())
    assert found.gauges.kv_usage
    assert named(found, "glm-decode-1").caches_url == named(found, "glm-decode-1").ready_url.replace("live", "metrics")
    assert {process.name for process in found.processes if process.caches_url} == {"glm-decode-0", "glm-decode-1"}


def test_open_requests_get_their_grace_everywhere_before_the_kill() -> None:
    found = build(spec(stop_grace_s=90))
    for process in found.processes[1:]:
        assert process.env["DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"] == "90"
        assert process.stop_grace_s > 90
    assert named(found, "frontend").env["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"] == "90"


def test_the_frontend_waits_as_long_as_its_most_patient_deployment() -> None:
    found = build(spec(stop_grace_s=10), spec("b", model="sim/b", stop_grace_s=40))
    assert named(found, "frontend").env["DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"] == "40"


def test_the_same_request_gives_the_same_plan() -> None:
    assert build(spec()) == build(spec())


def test_scaling_touches_no_other_process() -> None:
    known = ports.assign(plan.worker_names([spec()]), {}, 9000)
    small, large = build(spec()), build(spec(pools=(("prefill", 2), ("decode", 4))), known=known)
    assert digests(small).items() <= digests(large).items()
    assert len(large.processes) == len(small.processes) + 3


def test_another_deployment_touches_no_other_process() -> None:
    alone = build(spec("m"))
    known = ports.assign(plan.worker_names([spec("m")]), {}, 9000)
    together = build(spec("a", model="sim/a"), spec("m"), known=known)
    assert digests(alone).items() <= digests(together).items()


@pytest.mark.parametrize(("engine", "replaced"), [
    ({"cache": {"block_size": 32}}, {"glm-prefill-0", "glm-decode-0", "glm-decode-1"}),
    ({"timing": {"speedup_ratio": 2}}, {"glm-prefill-0", "glm-decode-0", "glm-decode-1"}),
    ({"router": {"mode": "round_robin"}}, {"frontend"}),
    ({"router": {"migration_limit": 4}}, {"frontend"}),
])
def test_a_change_replaces_the_processes_that_it_concerns(engine: dict[str, Any], replaced: set[str]) -> None:
    before, after = digests(build(spec())), digests(build(spec(**engine)))
    assert {name for name in before if before[name] != after[name]} == replaced


def test_another_model_directory_replaces_the_workers() -> None:
    before, after = digests(build(spec())), digests(build(spec(), model="sim-2"))
    assert {name for name in before if before[name] != after[name]} == {
        "glm-prefill-0", "glm-decode-0", "glm-decode-1"}


def test_another_release_of_dynamo_replaces_every_process() -> None:
    before, after = digests(build(spec())), digests(build(spec(), site=replace(SITE, release="1.6.2")))
    assert all(before[name] != after[name] for name in before)


def test_replicas_differ_from_each_other() -> None:
    found = digests(build(spec()))
    assert found["glm-decode-0"] != found["glm-decode-1"]


def test_deployments_have_namespaces_of_their_own() -> None:
    found = build(spec("a.b"), spec("a-b"))
    assert named(found, "a.b-decode-0").env["DYN_NAMESPACE"] == "a_b"
    assert named(found, "a-b-decode-0").env["DYN_NAMESPACE"] == "a-b"


def test_deployments_that_disagree_on_routing_cannot_share_a_frontend() -> None:
    with pytest.raises(SpecRefused, match=r"engine\.router: differs from that of deployment glm") as caught:
        build(spec(), spec("b", router={"mode": "round_robin"}))
    assert caught.value.deployment_id == "b"


def test_a_deployment_named_twice_is_refused() -> None:
    with pytest.raises(SpecRefused, match="named twice"):
        build(spec(), spec())
