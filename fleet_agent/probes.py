"""Probes that were ordered: one short request each to the fleet's own frontend, as a client's would be.

A probe that was begun before a restart is asked again after it: asking twice does no harm.
"""

from collections.abc import Callable

import httpx
from pydantic import BaseModel, ValidationError

from control_plane.contracts.clock import Clock
from fleet_agent.core import AgentState, Probed, TrackedCommand
from fleet_agent.store import Accepted

DEADLINE_S = 15.0
MAX_SAID = 200
QUESTION = {"messages": [{"role": "user", "content": "ping"}], "max_tokens": 1, "stream": False}


class _Answer(BaseModel):
    """As much of a chat completion as shows that tokens came."""

    class Usage(BaseModel):
        """What it counted."""

        completion_tokens: int

    usage: Usage


class Prober:
    """Asks through `client`; `accepted` is the plan that is being driven."""

    def __init__(self, client: httpx.AsyncClient, clock: Clock, accepted: Callable[[], Accepted | None]) -> None:
        self._client, self._clock, self._accepted = client, clock, accepted

    async def probe(self, state: AgentState) -> list[Probed]:
        """What came of the open probes, one after the other."""
        return [await self._probe(tracked) for tracked in state.open_probes]

    async def _probe(self, tracked: TrackedCommand) -> Probed:
        command_id, wanted = tracked.command.id, tracked.command.deployment_id
        accepted = self._accepted()
        mine = accepted.desired.deployments if accepted else []
        model = next((one.model_id for one in mine if one.deployment_id == wanted), None)
        if accepted is None or model is None:
            return Probed(command_id, False, f"this fleet has no {wanted}")
        left_s = min(DEADLINE_S, max(0.1, tracked.deadline_at_s - self._clock.time_s()))
        began_s = self._clock.monotonic_s()
        fault = await self._ask(accepted.plan.ingress_url, model, command_id, left_s)
        took_s = self._clock.monotonic_s() - began_s
        return Probed(command_id, not fault, fault or f"a token of {model} in {took_s:.2f} s")

    async def _ask(self, ingress_url: str, model: str, command_id: str, deadline_s: float) -> str:
        """What is wrong with the answer, empty if it has a token. The witness knows the request by the command's id."""
        try:
            answer = await self._client.post(
                f"{ingress_url}/v1/chat/completions", json={"model": model, **QUESTION},
                headers={"x-request-id": command_id}, timeout=deadline_s)
        except httpx.TimeoutException:
            return f"the frontend gave no answer within {deadline_s:.1f} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"the frontend cannot be asked: {error or type(error).__name__}"
        if not answer.is_success:
            return f"the frontend answered {answer.status_code}: {answer.text[:MAX_SAID]}"
        try:
            tokens = _Answer.model_validate_json(answer.content).usage.completion_tokens
        except ValidationError:
            return "the frontend answered with something else than a completion"
        return "" if tokens > 0 else "the frontend answered without a token"
