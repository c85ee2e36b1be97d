"""What edges are told of an engine, and what makes two engines the same."""

from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts.deployment import DesiredDeployment, EngineFacts
from engine.facts import facts
from engine.sim.tokenizer import special_token_ids
from engine.spec import DeploymentSpec

SCRIPT = {"kind": "script"}
SIM = {"kind": "sim"}


def told(engine: dict[str, Any], model_dir: str = "sim-1", name: str = "glm", grammar_url: str | None = None,
         replicas: int = 1) -> EngineFacts:
    spec = DeploymentSpec.from_desired(DesiredDeployment.model_validate({
        "deployment_id": name, "generation": 1, "model_id": "sim/glm", "context_window": 32_768,
        "pools": [{"role": "aggregated", "replicas": replicas}], "engine": engine}))
    return facts(spec, Path("/models") / model_dir, grammar_url)


@pytest.mark.parametrize("engine", [SIM, SCRIPT])
def test_engines_in_different_places_are_the_same_one(engine: dict[str, Any]) -> None:
    here = told(engine, name="eu-glm", replicas=1)
    there = told({**engine, "router": {"mode": "round_robin"}, "stop_grace_s": 7}, name="us-glm", replicas=4)
    assert here.identity == there.identity != ""


@pytest.mark.parametrize(("engine", "changes"), [
    (SIM, {"kind": "script"}), (SCRIPT, {"tool_parser": "hermes"}), (SCRIPT, {"reasoning_parser": ""}),
    (SCRIPT, {"strict_tools": False})])
def test_what_changes_answers_makes_another_engine(engine: dict[str, Any], changes: dict[str, Any]) -> None:
    assert told(engine).identity != told({**engine, **changes}).identity


@pytest.mark.parametrize("engine", [SIM, SCRIPT])
def test_another_model_is_another_engine(engine: dict[str, Any]) -> None:
    assert told(engine).identity != told(engine, model_dir="sim-2").identity


def test_speed_makes_no_other_engine_and_is_told() -> None:
    fast = told({**SIM, "timing": {"speedup_ratio": 10, "prefill_tokens_per_s": 8000}})
    assert (fast.identity, fast.prefill_tokens_per_s) == (told(SIM).identity, 8000.0)
    assert told(SIM).prefill_tokens_per_s is None


def test_the_simulated_engine_parses_nothing() -> None:
    found = told(SIM)
    assert (found.tool_parser, found.reasoning_parser, found.reasoning) == ("", "", None)


def test_the_scripted_engine_says_how_reasoning_is_marked() -> None:
    found, ids = told(SCRIPT), special_token_ids()
    assert (found.tool_parser, found.reasoning_parser) == ("glm47", "glm45")
    assert found.reasoning is not None
    assert found.reasoning.start_ids == [ids["<think>"]]
    assert found.reasoning.end_ids == [ids["</think>"]]
    assert not found.reasoning.starts_inside


def test_no_reasoning_parser_means_no_marks() -> None:
    assert told({**SCRIPT, "reasoning_parser": ""}).reasoning is None


@pytest.mark.parametrize("engine", [SIM, SCRIPT])
def test_neither_engine_keeps_salts_apart(engine: dict[str, Any]) -> None:
    assert not told(engine).is_salt_aware


def test_the_grammar_service_is_told_where_there_is_one() -> None:
    assert told(SCRIPT, grammar_url="http://127.0.0.1:9005").grammar_url == "http://127.0.0.1:9005"
    assert told(SCRIPT).grammar_url is None
