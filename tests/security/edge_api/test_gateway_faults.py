"""Faults that users of other gateways reported, each with the test that holds this edge to what is right.

Rows have numbers, as they were collected; what a row stands for is in its test's name. Kinds without a test elsewhere
have theirs below the table.
"""

import ast
import asyncio
import json
import time
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from control_plane.contracts import ids
from control_plane.contracts.usage import Outcome
from edge_api.hot.answer import read_answer
from tests.integration.edge_api.hot.client import request
from tests.integration.edge_api.hot.conftest import EdgeUnderTest, until
from tests.integration.edge_api.hot.datacenter import (
    DONE,
    Datacenter,
    Upcall,
    chunk,
    final_usage,
    streams,
    whole_answer,
)
from tests.unit.edge_api.builders import MODEL, PRICE

HOT, ADMISSION, E = "integration/edge_api/hot", "integration/edge_api/admission", "integration/edge_api"
ANSWERS, BROKEN, LEAVING = f"{HOT}/test_answers.py", f"{HOT}/test_broken_streams.py", f"{HOT}/test_leaving_clients.py"
FAILING, BAD = f"{HOT}/test_failing_over.py", f"{HOT}/test_bad_requests.py"
PROCESSES, LIMITS = f"{ADMISSION}/test_edge_processes.py", f"{ADMISSION}/test_shared_limits.py"
USAGE = "integration/control_plane/usage"
HERE = "security/edge_api/test_gateway_faults.py"

COVERED: dict[int, tuple[str, ...]] = {
    # usage and token counts
    1: (f"{ANSWERS}::test_the_metering_switches_are_put_into_a_stream",
        f"{ANSWERS}::test_a_streams_record_counts_what_the_engine_counted"),
    2: (f"{ANSWERS}::test_a_streams_record_counts_what_the_engine_counted",),
    3: (f"{ANSWERS}::test_the_usage_event_goes_only_to_who_asked",),
    4: (f"{ANSWERS}::test_the_usage_event_goes_only_to_who_asked",),
    5: (f"{ANSWERS}::test_usage_on_the_last_chunk_is_metered_and_becomes_the_usage_event",),
    8: (f"{ANSWERS}::test_continuous_usage_is_kept_for_who_asked_for_it",
        f"{ANSWERS}::test_a_stream_arrives_whole_and_without_the_engines_extras"),
    9: (f"{HERE}::test_every_way_to_ask_is_metered_alike",),
    10: (f"{HERE}::test_fifty_tokens_are_fifty",),
    12: (f"{ANSWERS}::test_unknown_cached_tokens_are_billed_in_full",),
    13: (f"{ANSWERS}::test_unknown_cached_tokens_are_billed_in_full",),
    14: (f"{HERE}::test_whoever_leaves_a_stream_is_billed_for_what_came_in_every_dialect",),
    16: (f"{HERE}::test_every_way_to_ask_is_metered_alike",),
    17: (f"{HERE}::test_every_way_to_ask_is_metered_alike",),
    18: (f"{ANSWERS}::test_an_answer_without_usage_is_delivered_and_left_to_the_witness",),
    # clients that leave, streams that break
    20: (f"{LEAVING}::test_a_client_that_leaves_pays_for_what_it_got",),
    21: (f"{LEAVING}::test_a_client_that_leaves_before_the_first_byte_is_left_to_the_witness",),
    22: (f"{LEAVING}::test_a_client_that_leaves_pays_for_what_it_got",),
    23: (f"{LEAVING}::test_a_client_that_leaves_before_the_first_byte_is_left_to_the_witness",),
    24: (f"{LEAVING}::test_a_client_that_leaves_stops_the_datacenter_within_a_second",
         f"{LEAVING}::test_a_client_that_leaves_while_its_stream_is_tried_elsewhere_stops_that_as_well"),
    25: (f"{HERE}::test_records_add_up_to_what_the_datacenter_sent",),
    26: (f"{BROKEN}::test_a_stream_that_broke_before_any_token_costs_nothing",
         f"{FAILING}::test_failure_everywhere_is_one_record_that_costs_nothing"),
    28: (f"{PROCESSES}::test_a_slot_is_free_after_a_stream_that_its_client_left",
         "unit/edge_api/admission/test_gate.py::test_releasing_twice_frees_one_slot"),
    30: (f"{LEAVING}::test_nothing_stays_open_when_many_clients_leave",),
    # framing of events
    31: (f"{ANSWERS}::test_events_cut_anywhere_arrive_whole",),
    32: (f"{ANSWERS}::test_events_cut_anywhere_arrive_whole",),
    33: (f"{ANSWERS}::test_a_stream_with_crlf_line_ends_is_understood", f"{BROKEN}::test_an_endless_event_is_cut_off"),
    34: (f"{ANSWERS}::test_events_cut_anywhere_arrive_whole",),
    35: (f"{ANSWERS}::test_comments_pass_and_never_become_data",),
    36: (f"{ANSWERS}::test_comments_pass_and_never_become_data",),
    38: (f"{ANSWERS}::test_a_stream_ends_well_when_the_datacenter_leaves_done_out",),
    39: (f"{BROKEN}::test_a_broken_stream_ends_with_one_honest_error",),
    41: (f"{BROKEN}::test_a_broken_stream_ends_with_one_honest_error",),
    42: (f"{HERE}::test_a_stream_of_nothing_is_no_success",),
    43: (f"{ANSWERS}::test_a_stream_forbids_buffering_on_the_way",),
    44: ("unit/edge_api/upstream/test_upstream.py::test_the_connection_sends_small_pieces_at_once",
         f"{HERE}::test_events_arrive_when_they_are_sent"),
    45: (f"{HERE}::test_events_arrive_when_they_are_sent",),
    # tools, choices, parameters
    46: ("unit/edge_api/dialects/test_turn.py::test_later_names_that_are_empty_or_null_change_nothing",
         f"{HERE}::test_what_is_not_understood_is_passed_on_as_it_is"),
    47: ("unit/edge_api/dialects/test_turn.py::test_fragments_without_an_index_belong_to_the_last_call",),
    49: (f"{HERE}::test_what_is_not_understood_is_passed_on_as_it_is",),
    50: (f"{HERE}::test_what_is_not_understood_is_passed_on_as_it_is",),
    51: (f"{ANSWERS}::test_unknown_fields_go_upstream_untouched",
         "unit/edge_api/hot/test_request.py::test_a_clients_stream_options_are_kept_and_overruled"),
    # errors, retries, failover
    54: (f"{FAILING}::test_failure_everywhere_is_502_without_the_datacenters_words",),
    55: (f"{FAILING}::test_a_request_shaped_refusal_is_passed_on_and_not_repeated",),
    56: (f"{FAILING}::test_one_tenants_500_does_not_eject_the_datacenter",),
    57: ("fuzz/test_seeds.py::test_no_seed_breaks_a_promise",
         "security/edge_api/test_smuggling.py::test_anthropics_clients_are_told_in_their_own_shape"),
    59: (f"{FAILING}::test_the_first_byte_deadline_is_504_and_the_prompt_is_not_sent_again",),
    60: (f"{FAILING}::test_the_first_byte_deadline_is_504_and_the_prompt_is_not_sent_again",),
    61: (f"{HOT}/test_resume.py::test_text_goes_on_wherever_it_is_cut",),
    62: (f"{FAILING}::test_a_request_that_breaks_every_datacenter_is_tried_in_two",
         f"{FAILING}::test_retries_are_bounded_when_everything_fails"),
    63: ("chaos/test_lost_datacenters.py::test_a_lost_datacenter_is_asked_no_more_and_found_again",),
    64: ("unit/edge_api/routing/test_choose.py::test_the_only_datacenter_is_used_even_while_ejected",
         f"{FAILING}::test_overload_everywhere_is_429_and_says_when_to_come_back"),
    65: (f"{FAILING}::test_retry_after_is_never_beyond_what_the_sdks_obey",
         "unit/edge_api/routing/test_choose.py::test_an_overloaded_datacenter_is_left_alone_for_a_while"),
    68: ("unit/edge_api/routing/test_retry.py::test_later_attempts_wait_longer_and_not_in_step",
         f"{HERE}::test_nobody_is_told_to_come_back_in_step"),
    # budgets, limits, keys
    69: (f"{PROCESSES}::test_five_at_once_do_not_exceed_a_limit_of_tokens",),
    70: (f"{ADMISSION}/test_leased_money.py::test_of_eight_at_once_with_money_for_one_one_is_let_in",),
    71: (f"{LIMITS}::test_after_500_requests_the_counters_are_what_was_used",),
    73: (f"{LIMITS}::test_tokens_are_reserved_before_a_request_is_sent",),
    75: ("e2e/test_operations.py::test_a_revoked_key_is_refused_by_every_edge_within_five_seconds",),
    76: (f"{PROCESSES}::test_without_valkey_requests_are_judged_at_once_and_nobody_is_turned_away_as_a_stranger",),
    77: (f"{E}/test_keyring.py::test_while_the_directory_is_away_known_keys_work_and_others_cannot_be_judged",),
    78: (f"{E}/test_process.py::test_an_edge_restarts_and_serves_with_everything_above_it_down",),
    # ledger and database
    79: (f"{USAGE}/test_spend.py::test_spend_equals_the_records_after_shuffled_repeated_batches_from_two_edges",
         "integration/control_plane/test_db.py::test_two_that_lock_crosswise_both_get_done"),
    80: (f"{E}/test_keyring.py::test_many_requests_at_once_ask_once",
         f"{E}/account/test_account.py::test_only_so_many_questions_are_asked_at_once"),
    81: (f"{E}/test_process.py::test_sigterm_lets_streams_finish_and_ships_their_usage",),
    82: (f"{E}/test_process.py::test_sigterm_lets_streams_finish_and_ships_their_usage",),
    84: (f"{USAGE}/test_intake.py::test_three_shuffled_resends_in_other_batches_store_each_record_once",),
    86: (f"{USAGE}/test_large_tables.py::test_no_question_about_usage_reads_the_whole_table",),
    87: ("unit/control_plane/contracts/test_pricing.py::test_cached_tokens_are_not_billed_twice",),
    88: (f"{HERE}::test_reasoning_is_part_of_the_completion",),
    # headers, bodies, secrets
    89: (f"{ANSWERS}::test_only_named_headers_go_upstream",),
    90: ("security/edge_api/test_canary.py::test_no_canary_is_where_it_must_not_be",),
    91: (f"{ANSWERS}::test_nothing_of_the_datacenters_headers_comes_back",
         f"{ANSWERS}::test_only_named_headers_go_upstream"),
    93: (f"{BAD}::test_a_chunked_body_past_the_limit_is_413", f"{BAD}::test_a_chunked_body_within_the_limit_is_served"),
    94: ("lint/test_texts.py::test_a_requirement_without_pin_or_hash_is_found",
         "e2e/test_client.py::test_a_stream_gives_every_token_and_no_usage_unasked"),
    95: ("lint/test_texts.py::test_a_requirement_without_pin_or_hash_is_found",
         f"{E}/test_keyring.py::test_while_the_directory_is_away_known_keys_work_and_others_cannot_be_judged"),
}


@pytest.mark.parametrize("row", COVERED)
def test_a_row_names_tests_that_there_are(row: int) -> None:
    for named in COVERED[row]:
        path, _, test = named.partition("::")
        assert test in _tests(path), named


@cache
def _tests(path: str) -> frozenset[str]:
    tree = ast.parse((Path(__file__).parents[2] / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    "completions": ("/v1/completions", {"prompt": "hi"}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}),
    "responses": ("/v1/responses", {"input": "hi"}),
}


def asked(edge: EdgeUnderTest, dialect: str, **fields: object) -> bytes:
    path, body = ASKED[dialect]
    return request(edge.client.key, {"model": MODEL, **body, **fields}, path=path)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("dialect", ASKED)
async def test_every_way_to_ask_is_metered_alike(edge: EdgeUnderTest, dialect: str, streamed: bool) -> None:
    assert (await edge.client.send(asked(edge, dialect, stream=streamed))).status == 200
    record = await edge.record()
    assert (record.dialect, record.outcome, record.streamed) == (dialect, Outcome.COMPLETED, streamed)
    assert (record.prompt_tokens, record.completion_tokens) == (16, 3)


@pytest.mark.parametrize("dialect", ASKED)
async def test_whoever_leaves_a_stream_is_billed_for_what_came_in_every_dialect(
        edge: EdgeUnderTest, home: Datacenter, dialect: str) -> None:
    home.script = streams(*(chunk(" a", [n], completion=n) for n in range(1, 200)), pause_s=0.02)
    async with edge.client.connection() as connection:
        await connection.send(asked(edge, dialect, stream=True))
        await connection.read_head()
        while b" a" not in await connection.read_chunk():
            pass
    record = await edge.record()
    assert (record.outcome, record.dialect, record.prompt_tokens) == (Outcome.CLIENT_GONE, dialect, 16)
    assert 1 <= record.completion_tokens < 100
    assert float(record.cost_usd) > 0


async def test_fifty_tokens_are_fifty(edge: EdgeUnderTest, home: Datacenter) -> None:
    events = [chunk(" a", [n], completion=n) for n in range(1, 51)]
    home.script = streams(*events, chunk("", [], finish="stop", completion=50), final_usage(16, 50), DONE, pause_s=0)
    assert (await edge.client.ask(stream=True)).text == " a" * 50
    assert (await edge.record()).completion_tokens == 50


async def test_records_add_up_to_what_the_datacenter_sent(edge: EdgeUnderTest, home: Datacenter) -> None:
    sent: Counter[str] = Counter()

    async def counting(call: Upcall) -> None:
        await call.begin_stream()
        for n in range(1, 6):
            await call.send(chunk(" a", [n], completion=n))
            sent[call.headers["x-request-id"].partition(".")[0]] += 1
            await asyncio.sleep(0.03)
        await call.send(chunk("", [], finish="stop", completion=5), final_usage(16, 5), DONE)
        await call.end_stream()

    async def client(leaves: bool) -> None:
        async with edge.client.connection() as connection:
            await connection.send(edge.client.request(stream=True))
            if leaves:
                await connection.read_head()
                for _ in range(3):  # a keep-alive and two tokens
                    await connection.read_chunk()
            else:
                await connection.read_answer()

    home.script = counting
    await asyncio.gather(*(client(leaves=n % 5 == 0) for n in range(50)))
    await until(lambda: len(edge.records()) == 50)
    for record in edge.records():
        told = sent[str(record.request_id)]
        assert record.completion_tokens == told if record.outcome is Outcome.COMPLETED else (
            2 <= record.completion_tokens <= told)
    assert sum(record.outcome is Outcome.CLIENT_GONE for record in edge.records()) == 10


@pytest.mark.parametrize("told", [[DONE], [], [b": keep-alive\n\n", DONE], [final_usage(16, 0), DONE]])
async def test_a_stream_of_nothing_is_no_success(edge: EdgeUnderTest, home: Datacenter, told: list[bytes]) -> None:
    home.script = streams(*told)
    events = (await edge.client.ask(stream=True)).events
    assert "error" in events[-1]
    record = await edge.record()
    assert (record.outcome, record.cost_usd) == (Outcome.UPSTREAM_LOST, "0")


async def test_events_arrive_when_they_are_sent(edge: EdgeUnderTest, home: Datacenter) -> None:
    home.script = streams(*(chunk(" a", [n], completion=n) for n in range(1, 11)), pause_s=0.1)
    async with edge.client.connection() as connection:
        await connection.send(edge.client.request(stream=True))
        await connection.read_head()
        assert await connection.read_chunk() == b": keep-alive\n\n"
        came_s = []
        for _ in range(10):
            assert (await connection.read_chunk()).count(b"data: ") == 1
            came_s.append(time.monotonic())
    gaps_s = sorted(later - sooner for sooner, later in pairwise(came_s))
    assert 0.06 < gaps_s[len(gaps_s) // 2] < 0.2


async def test_what_is_not_understood_is_passed_on_as_it_is(edge: EdgeUnderTest, home: Datacenter) -> None:
    delta = (b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\\"a\\": "}},'
             b'{"index":1,"function":{"arguments":" 1}"}}]}')
    logprobs = b'{"content":[{"token":" a","logprob":-0.25,"bytes":[32,97],"top_logprobs":null}],"new":[]}'
    told = b'"choices":[{"index":0,"delta":%b,"logprobs":%b,"finish_reason":null}]' % (delta, logprobs)
    home.script = streams(b'data: {"id":"1",' + told + b',"nvext":{"completion_token_ids":[1]}}\n\n',
                          chunk("", [], finish="tool_calls"), DONE)
    answer = await edge.client.ask(stream=True, logprobs=True, top_logprobs=1)
    assert told + b"}\n\n" in answer.body


async def test_nobody_is_told_to_come_back_in_step(edge: EdgeUnderTest) -> None:
    edge.directory.overrun()
    strange = request(ids.new_secret("sk_meridian_local"), edge.client.body())
    refused = [await edge.client.send(strange) for _ in range(12)]
    assert {answer.status for answer in refused} == {429}
    assert len({answer.headers["retry-after-ms"] for answer in refused}) > 3


def test_reasoning_is_part_of_the_completion() -> None:
    told = whole_answer("x", prompt=100, completion=482)
    told["usage"]["completion_tokens_details"] = {"reasoning_tokens": 448}
    answer = read_answer(json.dumps(told).encode(), PRICE)
    assert (answer.counts.completion, answer.counts.reasoning) == (482, 448)
    assert answer.cost is not None
    assert answer.cost.total_usd == 100 * PRICE.input_usd + 482 * PRICE.output_usd

