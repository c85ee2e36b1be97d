"""Every request of every dialect, streamed or not, is one usage record that says what the client was told."""

from decimal import Decimal

import pytest

from control_plane.contracts import ids
from tests.contract.clients import DIALECTS, Clients, Told
from tests.contract.guests import MODEL, Guest

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_client_was_told_is_what_was_recorded(
        guest: Guest, clients: Clients, dialect: str, stream: bool) -> None:
    before = len(guest.records())
    prompt = f"{ids.uuid7().hex} the same long beginning " * 40

    def ask() -> Told:
        return DIALECTS[dialect](clients, stream, model=MODEL, max_tokens=16,
                                 messages=[{"role": "user", "content": prompt}])

    first, again = ask(), ask()
    assert (first.cached, first.completion, first.prompt) == (0, 16, again.prompt)
    assert again.cached > 500
    assert again.cost_usd < first.cost_usd
    for told in (first, again):
        record, generation = guest.record_of(told.request_id), guest.generation(told.request_id)
        recorded = Told(told.request_id, record["prompt_tokens"], record["cached_tokens"],
                        record["completion_tokens"], generation["native_tokens_reasoning"],
                        Decimal(record["cost_usd"]))
        assert recorded == told
        assert (record["outcome"], record["streamed"], record["attempts"]) == ("completed", stream, 1)
        assert (generation["api_type"], generation["finish_reason"]) == (dialect, "length")
        assert told.cost_usd == (told.prompt - told.cached) * Decimal("0.0000006") + told.cached * Decimal(
            "0.00000011") + told.completion * Decimal("0.0000022")
    assert len(guest.records()) == before + 2
