"""The deployment specification: what it takes, what it refuses, and whether the refusal names the field."""

import pytest

from control_plane.contracts.deployment import DesiredDeployment, PoolRole
from engine.spec import DeploymentSpec, RouterMode, ScriptEngine, SimEngine, SpecRefused

P1_D2 = [{"role": "prefill", "replicas": 1}, {"role": "decode", "replicas": 2}]


def desired(engine: object = None, pools: object = None, **fields: object) -> DesiredDeployment:
    return DesiredDeployment.model_validate({
        "deployment_id": "eu-a-glm", "generation": 3, "model_id": "sim/glm", "context_window": 202_752,
        "pools": P1_D2 if pools is None else pools, "engine": {"kind": "sim"} if engine is None else engine, **fields})


def refusal(**changes: object) -> str:
    with pytest.raises(SpecRefused) as caught:
        DeploymentSpec.from_desired(desired(**changes))
    assert caught.value.deployment_id == "eu-a-glm"
    return str(caught.value)


def test_only_the_kind_has_to_be_said() -> None:
    spec = DeploymentSpec.from_desired(desired())
    assert isinstance(spec.engine, SimEngine)
    assert spec.engine.router.mode is RouterMode.KV
    assert spec.engine.router.session_affinity_ttl_s == 600
    assert spec.engine.router.migration_limit == 3
    assert spec.engine.cache.block_size * spec.engine.cache.blocks_per_replica >= spec.model.context_window
    assert spec.engine.timing.speedup_ratio == 1.0
    assert spec.replicas == 3


def test_every_part_can_be_set() -> None:
    spec = DeploymentSpec.from_desired(desired(engine={
        "kind": "sim", "router": {"mode": "round_robin", "session_affinity_ttl_s": 0, "migration_limit": 0},
        "cache": {"block_size": 16, "blocks_per_replica": 20_000}, "timing": {"speedup_ratio": 10},
        "stop_grace_s": 5}))
    assert isinstance(spec.engine, SimEngine)
    assert spec.engine.router.mode is RouterMode.ROUND_ROBIN
    assert spec.engine.cache.blocks_per_replica == 20_000
    assert spec.engine.timing.speedup_ratio == 10
    assert spec.engine.stop_grace_s == 5


def test_an_aggregated_pool_stands_alone() -> None:
    spec = DeploymentSpec.from_desired(desired(pools=[{"role": "aggregated", "replicas": 4}]))
    assert [pool.role for pool in spec.pools] == [PoolRole.AGGREGATED]


@pytest.mark.parametrize("pools", [
    [{"role": "aggregated", "replicas": 0}],
    [{"role": "prefill", "replicas": 0}, {"role": "decode", "replicas": 0}],
])
def test_scaled_to_zero_is_a_valid_state(pools: object) -> None:
    assert DeploymentSpec.from_desired(desired(pools=pools)).replicas == 0


def test_a_scripted_engine_needs_only_its_kind_and_an_aggregated_pool() -> None:
    spec = DeploymentSpec.from_desired(desired(
        engine={"kind": "script"}, pools=[{"role": "aggregated", "replicas": 1}], context_window=10_000_000))
    assert isinstance(spec.engine, ScriptEngine)
    assert (spec.engine.tool_parser, spec.engine.reasoning_parser, spec.engine.strict_tools) == ("glm47", "glm45", True)


def test_a_scripted_engine_has_no_prefill_pool() -> None:
    assert "pools: the scripted engine has aggregated pools only" in refusal(engine={"kind": "script"})


@pytest.mark.parametrize(("engine", "words"), [
    ({"kind": "script", "tool_parser": "nobody"}, "engine.tool_parser: "),
    ({"kind": "script", "timing": {}}, "engine.timing: no such field"),
    ({"kind": "scirpt"}, "engine.kind: must be sim or script"),
    ({"kind": 3}, "engine.kind: must be sim or script"),
    ("sim", "engine: "),
])
def test_a_refusal_of_an_engine_names_its_field(engine: object, words: str) -> None:
    pools = [{"role": "aggregated", "replicas": 1}]
    with pytest.raises(SpecRefused, match=f"^{words}"):
        DeploymentSpec.from_desired(desired(engine={}, pools=pools).model_copy(update={"engine": engine}))


def test_vllm_is_refused_with_the_reason() -> None:
    assert refusal(engine={"kind": "vllm"}) == "engine.kind: vllm is not in this release; use sim"


@pytest.mark.parametrize(("engine", "field"), [
    ({}, "engine.kind: Field required"),
    ({"kind": "trtllm"}, "engine.kind: "),
    ({"kind": "sim", "routr": {}}, "engine.routr: no such field"),
    ({"kind": "sim", "router": {"mode": "random"}}, "engine.router.mode: "),
    ({"kind": "sim", "router": {"migration_limit": -1}}, "engine.router.migration_limit: "),
    ({"kind": "sim", "router": {"session_affinity_ttl_s": -1}}, "engine.router.session_affinity_ttl_s: "),
    ({"kind": "sim", "cache": {"block_size": 48}}, "engine.cache.block_size: must be a power of two"),
    ({"kind": "sim", "cache": {"block_size": 0}}, "engine.cache.block_size: "),
    ({"kind": "sim", "timing": {"speedup_ratio": 0}}, "engine.timing.speedup_ratio: "),
    ({"kind": "sim", "timing": {"speedup_ratio": float("nan")}}, "engine.timing.speedup_ratio: "),
    ({"kind": "sim", "stop_grace_s": 0}, "engine.stop_grace_s: "),
])
def test_a_refusal_names_the_field(engine: object, field: str) -> None:
    assert refusal(engine=engine).startswith(field)


def test_every_fault_is_named_at_once() -> None:
    text = refusal(engine={"kind": "sim", "cache": {"block_size": 3}, "timing": {"speed": 2}})
    assert "engine.cache.block_size" in text
    assert "engine.timing.speed: no such field" in text


def test_a_cache_smaller_than_one_context_is_refused() -> None:
    text = refusal(engine={"kind": "sim", "cache": {"block_size": 16, "blocks_per_replica": 100}})
    assert text == "engine.cache: 100 blocks of 16 hold 1600 tokens, fewer than the context window of 202752"


@pytest.mark.parametrize(("pools", "error"), [
    ([], "pools: "),
    ([{"role": "prefill", "replicas": 1}], "pools: prefill needs a decode pool beside it"),
    ([{"role": "decode", "replicas": 1}], "pools: decode needs a prefill pool beside it"),
    ([*P1_D2, {"role": "decode", "replicas": 1}], "pools: each role may be named once"),
    ([{"role": "aggregated", "replicas": 1}, {"role": "decode", "replicas": 1}], "pools: an aggregated pool"),
    ([{"role": "prefill", "replicas": 0}, {"role": "decode", "replicas": 2}],
     "pools: decode has 2 replicas and prefill none"),
    ([{"role": "prefill", "replicas": 2}, {"role": "decode", "replicas": 0}],
     "pools: prefill has 2 replicas and decode none"),
])
def test_pools_that_do_not_fit_together_are_refused(pools: object, error: str) -> None:
    assert refusal(pools=pools).startswith(error)


@pytest.mark.parametrize(("field", "value", "named"), [
    ("context_window", 0, "model.context_window: "),
    ("model_id", "", "model.id: "),
])
def test_a_nameless_or_windowless_model_is_refused(field: str, value: object, named: str) -> None:
    assert refusal(**{field: value}).startswith(named)


@pytest.mark.parametrize("deployment_id", ["", "../up", "A", "a b", "a_b", "-a", "a" * 64])
def test_an_id_that_cannot_name_files_and_processes_is_refused(deployment_id: str) -> None:
    with pytest.raises(SpecRefused, match="deployment_id"):
        DeploymentSpec.from_desired(desired(deployment_id=deployment_id))
