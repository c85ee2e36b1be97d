"""What edges are told of a deployment's engine; pure."""

import hashlib
import json
from pathlib import Path

from control_plane.contracts.deployment import EngineFacts, ReasoningFacts
from engine.sim.tokenizer import special_token_ids
from engine.spec import DeploymentSpec, ScriptEngine


def facts(spec: DeploymentSpec, model_dir: Path, grammar_url: str | None) -> EngineFacts:
    """The facts of one deployment. `model_dir` is named by its contents.

    Neither engine is salt-aware: the simulated cache ignores salts, and the scripted engine has none.
    """
    engine = spec.engine
    if isinstance(engine, ScriptEngine):
        identity = _identity(engine.kind, model_dir.name, engine.tool_parser, engine.reasoning_parser,
                             engine.strict_tools)
        return EngineFacts(
            identity=identity, grammar_url=grammar_url, tool_parser=engine.tool_parser,
            reasoning_parser=engine.reasoning_parser, reasoning=_reasoning() if engine.reasoning_parser else None)
    return EngineFacts(
        identity=_identity(engine.kind, model_dir.name), grammar_url=grammar_url,
        prefill_tokens_per_s=engine.timing.prefill_tokens_per_s)


def _identity(*parts: str | bool) -> str:
    """A digest of all that decides what an engine answers."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _reasoning() -> ReasoningFacts:
    """The template opens a thought only for a request that enables it (`enable_thinking`)."""
    ids = special_token_ids()
    return ReasoningFacts(start_ids=[ids["<think>"]], end_ids=[ids["</think>"]], starts_inside=False)
