"""Reading the frontend's figures, and what is made of them."""

import pytest

from control_plane.contracts.agent_sync import DeploymentPhase, ObservedDeployment
from control_plane.contracts.deployment import EngineFacts
from control_plane.contracts.launch import Gauges
from fleet_agent.core import Figures
from fleet_agent.drivers.base import ProcessStatus
from fleet_agent.observe import View, gauge_of, parse_figures, report
from tests.unit.fleet_agent import examples

GAUGES = Gauges(
    url="http://127.0.0.1:1/metrics", model_ready="dynamo_frontend_model_ready",
    inflight="dynamo_frontend_inflight_requests", queued="dynamo_frontend_queued_requests")

# Captured from a Dynamo 1.6.1 frontend, shortened.
PAGE = """\
# HELP dynamo_frontend_inflight_requests Number of inflight requests
# TYPE dynamo_frontend_inflight_requests gauge
dynamo_frontend_inflight_requests{model="sim/glm-5.3"} 3
# HELP dynamo_frontend_inter_token_latency_seconds Inter-token latency in seconds
# TYPE dynamo_frontend_inter_token_latency_seconds histogram
dynamo_frontend_inter_token_latency_seconds_bucket{model="sim/glm-5.3",le="0.001"} 0
dynamo_frontend_inter_token_latency_seconds_sum{model="sim/glm-5.3"} 0.11
# TYPE dynamo_frontend_model_ready gauge
dynamo_frontend_model_ready{model="sim/glm-5.3"} 1
dynamo_frontend_model_ready{model="sim/glm-5.3-air"} 0
# TYPE dynamo_frontend_queued_requests gauge
dynamo_frontend_queued_requests{model="sim/glm-5.3"} 2
"""

# The same frontend before its first request: a model's gauges of requests do not exist yet.
FRESH_PAGE = """\
# TYPE dynamo_frontend_model_ready gauge
dynamo_frontend_model_ready{model="sim/glm-5.3"} 1
"""


def test_figures_are_read_by_model() -> None:
    assert parse_figures(PAGE, GAUGES, "sim/glm-5.3") == Figures(model_ready=True, inflight=3, queued=2)


def test_a_model_whose_name_begins_like_another_is_not_confused_with_it() -> None:
    assert parse_figures(PAGE, GAUGES, "sim/glm-5.3-air") == Figures(model_ready=False, inflight=0, queued=0)


def test_before_the_first_request_there_are_no_requests() -> None:
    assert parse_figures(FRESH_PAGE, GAUGES, "sim/glm-5.3") == Figures(model_ready=True, inflight=0, queued=0)


def test_a_model_that_the_frontend_does_not_know_is_not_ready() -> None:
    assert parse_figures("", GAUGES, "sim/glm-5.3") == Figures(model_ready=False, inflight=0, queued=0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many"])
def test_a_figure_that_is_no_number_makes_all_of_them_null(value: str) -> None:
    page = PAGE.replace('inflight_requests{model="sim/glm-5.3"} 3', f'inflight_requests{{model="sim/glm-5.3"}} {value}')
    assert parse_figures(page, GAUGES, "sim/glm-5.3") == Figures()


@pytest.mark.parametrize(("page", "value"), [
    ('g{model="m"} 2\n', 2.0),
    ('g{model="m"} 2', 2.0),
    ('g{model="m"} 2 1700000000000\n', 2.0),
    ('g{worker="1",model="m"} 2\ng{model="m",worker="2"} 3\n', 5.0),
    ('g{model="m"} 0\n', 0.0),
    ('g{model="other"} 2\n', None),
    ('other_g{model="m"} 2\n', None),
    ('g_total{model="m"} 2\n', None),
    ('g{base_model="m"} 2\n', None),
    ('g{model="m"}\n', None),
    ("g 2\n", None),
    ("", None),
])
def test_a_gauge_is_summed_over_its_other_labels(page: str, value: float | None) -> None:
    assert gauge_of(page, "g", "m") == value


def test_quotes_in_a_models_name_are_escaped() -> None:
    assert gauge_of('g{model="a\\"b\\\\c"} 4\n', "g", 'a"b\\c') == 4


def status(name: str, role: str = "", is_ready: bool = True, is_running: bool = True, trouble: str = "",
           deployment_id: str = "test-a-glm") -> ProcessStatus:
    return ProcessStatus(name=name, deployment_id=deployment_id if role else "", role=role, is_wanted=True,
                         is_running=is_running, is_ready=is_ready, trouble=trouble)


FULL = (status("nats"), status("p0", "prefill"), status("d0", "decode"), status("d1", "decode"), status("frontend"))
SERVED = {"sim/glm": Figures(model_ready=True, inflight=4, queued=1)}


def seen(**changes: object) -> list[ObservedDeployment]:
    fields: dict[str, object] = {
        "desired": examples.desired(5), "accepted": examples.desired(5), "retired": [], "was_ready": frozenset(),
        "processes": FULL, "figures": SERVED, "trouble": {}}
    return report(View(**(fields | changes)))  # type: ignore[arg-type]


def only(deployments: list[ObservedDeployment]) -> ObservedDeployment:
    (deployment,) = deployments
    return deployment


def test_a_deployment_tells_the_facts_of_the_plan_that_runs() -> None:
    facts = {"test-a-glm": EngineFacts(identity="e1", grammar_url="http://127.0.0.1:9005")}
    assert only(seen(facts=facts)).facts == facts["test-a-glm"]
    assert only(seen()).facts == EngineFacts()


def test_a_full_deployment_is_ready_with_its_figures() -> None:
    deployment = only(seen())
    assert (deployment.phase, deployment.observed_generation) == (DeploymentPhase.READY, 5)
    assert [(p.role, p.desired_replicas, p.ready_replicas) for p in deployment.pools] == [
        ("prefill", 1, 1), ("decode", 2, 2)]
    assert (deployment.inflight, deployment.queued, deployment.message) == (4, 1, "")


def test_a_deployment_tells_its_fullest_cache_and_nothing_where_nobody_knows() -> None:
    assert only(seen(kv_usage={"test-a-glm": 0.75})).kv_usage == 0.75
    assert only(seen(kv_usage={"other": 0.75})).kv_usage is None


def test_a_fleet_without_orders_reports_nothing() -> None:
    assert seen(desired=None, accepted=None, processes=()) == []


def test_a_deployment_without_a_plan_is_pending() -> None:
    deployment = only(seen(accepted=None, processes=(), figures={}))
    assert (deployment.phase, deployment.observed_generation) == (DeploymentPhase.PENDING, 0)
    assert deployment.message == "no plan yet"


def test_a_newer_generation_counts_only_once_it_is_planned() -> None:
    deployment = only(seen(desired=examples.desired(6, examples.deployment(generation=6, decode=3))))
    assert (deployment.observed_generation, deployment.phase) == (5, DeploymentPhase.READY)


def test_a_lost_worker_degrades_a_deployment_that_was_ready() -> None:
    broken = status("d1", "decode", is_ready=False, is_running=False, trouble="ended by itself")
    deployment = only(seen(processes=(*FULL[:3], broken, FULL[4]), was_ready=frozenset({"test-a-glm"})))
    assert deployment.phase is DeploymentPhase.DEGRADED
    assert deployment.message == "d1 ended by itself"


def test_trouble_that_a_process_overcame_is_not_told() -> None:
    restarted = status("d1", "decode", trouble="ended by itself")
    assert only(seen(processes=(*FULL[:3], restarted, FULL[4]))).message == ""


def test_trouble_of_what_the_fleet_shares_is_told() -> None:
    nats = status("nats", is_ready=False, trouble="cannot be started")
    assert "nats cannot be started" in only(seen(processes=(nats, *FULL[1:]))).message


def test_trouble_of_many_processes_is_cut_short() -> None:
    broken = tuple(status(f"d{n}", "decode", is_ready=False, trouble="ended") for n in range(5))
    assert only(seen(processes=broken)).message == "d0 ended; d1 ended; d2 ended; and 2 more processes in trouble"


def test_figures_that_cannot_be_read_are_null() -> None:
    deployment = only(seen(figures={"sim/glm": Figures()}, was_ready=frozenset({"test-a-glm"})))
    assert (deployment.inflight, deployment.queued) == (None, None)
    assert (deployment.phase, deployment.message) == (
        DeploymentPhase.DEGRADED, "the frontend's figures cannot be read")


def test_without_any_process_there_is_no_request() -> None:
    dead = tuple(status(p.name, p.role, is_ready=False, is_running=False) for p in FULL)
    deployment = only(seen(processes=dead, figures={}))
    assert (deployment.inflight, deployment.queued) == (0, 0)


def test_a_refusal_comes_first() -> None:
    trouble = {"test-a-glm": "refused by the engine: no such engine"}
    deployment = only(seen(desired=examples.desired(6), trouble=trouble))
    assert (deployment.phase, deployment.observed_generation) == (DeploymentPhase.READY, 5)
    assert deployment.message == "refused by the engine: no such engine"


def test_a_deployment_that_is_scaled_to_zero_says_so() -> None:
    zero = examples.DesiredDeployment(
        deployment_id="test-a-glm", generation=5, model_id="sim/glm", context_window=1,
        pools=[examples.Pool(role=examples.PoolRole.DECODE, replicas=0)], engine={})
    state = examples.desired(5, zero)
    deployment = only(seen(desired=state, accepted=state, processes=()))
    assert (deployment.phase, deployment.message) == (DeploymentPhase.PENDING, "scaled to zero")


def test_a_deployment_that_is_not_desired_any_more_is_retiring_before_the_plan_follows() -> None:
    deployment = only(seen(desired=examples.DesiredState(generation=6, deployments=[])))
    assert deployment.phase is DeploymentPhase.RETIRING


def test_a_removed_deployment_is_retiring_while_a_process_of_it_lives() -> None:
    nothing = examples.DesiredState(generation=6, deployments=[])
    deployment = only(seen(desired=nothing, accepted=nothing, retired=["test-a-glm"]))
    assert (deployment.phase, deployment.inflight, deployment.observed_generation) == (
        DeploymentPhase.RETIRING, None, 6)


def test_a_removed_deployment_without_processes_is_gone() -> None:
    nothing = examples.DesiredState(generation=6, deployments=[])
    deployment = only(seen(desired=nothing, accepted=nothing, retired=["test-a-glm"], processes=()))
    assert (deployment.phase, deployment.inflight, deployment.message) == (DeploymentPhase.GONE, 0, "")


def test_deployments_do_not_count_each_others_replicas() -> None:
    state = examples.desired(5, examples.deployment("a"), examples.deployment("b"))
    processes = (status("a-d0", "decode", deployment_id="a"), status("b-d0", "decode", deployment_id="b"))
    found = seen(desired=state, accepted=state, processes=processes)
    assert [(d.deployment_id, d.pools[1].ready_replicas) for d in found] == [("a", 1), ("b", 1)]
