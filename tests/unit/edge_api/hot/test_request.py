"""A request's body: what is understood of it, what is refused, and exactly what goes upstream."""

import contextlib
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api import errors
from edge_api.dialects.plain import CHAT, COMPLETIONS
from edge_api.errors import Refusal
from edge_api.hot.request import Prepared, allowed_regions, prepare
from edge_api.hot.splice import salted
from edge_api.routing.table import RoutedModel, build_table
from tests.unit.edge_api.builders import MODEL, snapshot

MESSAGES = [{"role": "user", "content": "hi"}]
SWITCHES = {"stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "nvext": {"extra_fields": ["completion_token_ids"]}}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **fields}, ensure_ascii=False).encode()


REQUEST_ID = UUID("019ac7aa-0000-7000-8000-00000000002a")
ROUTED = build_table(snapshot()).models[MODEL]


def parse(raw: bytes, always_usage: bool, default_max_tokens: int | None = None,
          model: RoutedModel = ROUTED) -> Prepared:
    asked = CHAT.read(raw, {}, REQUEST_ID)
    return prepare(asked, replace(model, default_max_tokens=default_max_tokens), always_usage)


def sent(request: Prepared) -> bytes:
    return b"".join(request.pieces)


def pairs(raw: bytes) -> list[tuple[str, Any]]:
    """The top level with its order and its repetitions."""
    found: list[tuple[str, Any]] = json.loads(raw, object_pairs_hook=lambda items: items)
    return found


def test_a_unary_request_goes_upstream_byte_for_byte() -> None:
    raw = b'{"model" : "m",\n "messages":[ {"role":"user","content":"\\u00e9"} ], "x":1e3 } '
    assert sent(parse(raw, False)) == raw


def test_a_stream_gets_the_switches_and_keeps_its_bytes() -> None:
    raw = b'\n{ "model":"m","messages":[1],"stream":true}'
    assert sent(parse(raw, False)).endswith(b' "model":"m","messages":[1],"stream":true}')
    assert json.loads(sent(parse(raw, False))) == {"model": "m", "messages": [1], "stream": True, **SWITCHES}


def test_the_announced_length_is_what_is_sent() -> None:
    for raw in (body(), body(stream=True), body(stream=True, nvext=1, cache_salt="x", é="ü")):
        request = parse(raw, False)
        assert request.length == len(sent(request))


@pytest.mark.parametrize("named", [{}, {"max_tokens": None}, {"max_completion_tokens": None},
                                   {"max_tokens": None, "max_completion_tokens": None}])
@pytest.mark.parametrize("streamed", [{}, {"stream": True}, {"stream": True, "stream_options": {}}, {"nvext": {}}])
def test_a_request_without_a_limit_gets_the_models_default_once(
        named: dict[str, None], streamed: dict[str, Any]) -> None:
    upstream = pairs(sent(parse(body(**named, **streamed), False, 512)))
    assert [pair for pair in upstream if pair[0].startswith("max_")] == [("max_tokens", 512)]


@pytest.mark.parametrize("named", [{"max_tokens": 5}, {"max_completion_tokens": 5},
                                   {"max_tokens": None, "max_completion_tokens": 5}])
def test_a_limit_that_the_client_names_stays(named: dict[str, Any]) -> None:
    raw = body(**named)
    assert sent(parse(raw, False, 512)) == raw


@pytest.mark.parametrize("named", [{}, {"max_tokens": None}])
def test_a_model_without_a_default_leaves_the_limit_to_the_engine(named: dict[str, None]) -> None:
    raw = body(**named)
    assert sent(parse(raw, False, None)) == raw


SHORT = replace(ROUTED, max_output_tokens=100)


@pytest.mark.parametrize("named", [{}, {"max_tokens": 100}, {"max_tokens": None}, {"max_completion_tokens": 100}])
def test_a_limit_that_the_model_can_keep_passes(named: dict[str, Any]) -> None:
    parse(body(**named), False, model=SHORT)


@pytest.mark.parametrize("param", ["max_tokens", "max_completion_tokens"])
def test_a_limit_beyond_the_models_own_is_refused_and_named(param: str) -> None:
    with pytest.raises(Refusal, match="at most 100 tokens") as caught:
        parse(body(**{param: 101}), False, model=SHORT)
    assert (caught.value.status, caught.value.fault, caught.value.param) == (400, errors.INVALID_VALUE, param)


OWNED = ("stream_options", "nvext", "cache_salt")


@given(st.permutations(OWNED), st.sets(st.sampled_from(OWNED)), st.booleans())
def test_no_key_is_ever_sent_twice(order: list[str], named: set[str], streamed: bool) -> None:
    values = {"stream_options": {"include_usage": False, "keep": 1}, "nvext": {"annotations": ["x"]}, "cache_salt": "s"}
    raw = body(**{key: values[key] for key in order if key in named}, stream=streamed, other=[1, {"nvext": 2}])
    keys = [key for key, _ in pairs(sent(parse(raw, False)))]
    assert len(keys) == len(set(keys))
    assert "cache_salt" not in keys
    assert json.loads(sent(parse(raw, False)))["other"] == [1, {"nvext": 2}]


def test_a_clients_stream_options_are_kept_and_overruled() -> None:
    request = parse(body(stream=True, stream_options={"include_usage": False, "future": {"a": 1}}), False)
    assert json.loads(sent(request))["stream_options"] == {
        "include_usage": True, "continuous_usage_stats": True, "future": {"a": 1}}
    assert not request.wants_usage


def test_a_salt_is_put_in_front() -> None:
    for raw in (body(), body(stream=True), body(stream=True, cache_salt="mine", nvext={"cache_salt": "mine"})):
        pieces = b"".join(salted(parse(raw, False).pieces, "c2FsdA"))
        assert pairs(pieces)[0] == ("cache_salt", "c2FsdA")
        assert b"mine" not in pieces


@pytest.mark.parametrize("named", [
    {"service_tier": "flex"}, {"session_id": "s"}, {"safety_identifier": "h"}, {"prompt_cache_retention": "24h"},
    {"usage": {"include": True}}, {"prompt_cache_key": "k"}, {"provider": {"only": ["us-east-1"]}}])
def test_what_is_between_client_and_edge_stays_here(named: dict[str, Any]) -> None:
    assert json.loads(sent(parse(body(**named), False))) == {"model": "m", "messages": MESSAGES}


def test_an_unknown_service_tier_is_refused_and_named() -> None:
    with pytest.raises(Refusal, match="platinum") as caught:
        parse(body(service_tier="platinum"), False)
    assert caught.value.param == "service_tier"


REGIONS = frozenset({"us-east-1", "eu-north-1"})


@pytest.mark.parametrize(("asked", "header", "team", "allowed"), [
    ({}, None, None, None),
    ({}, None, ["us-east-1"], {"us-east-1"}),
    ({}, b"eu-north-1, us-east-1", None, {"us-east-1", "eu-north-1"}),
    ({}, b"eu-north-1", ["us-east-1", "eu-north-1"], {"eu-north-1"}),
    ({"provider": {"only": ["us-east-1"]}}, b"eu-north-1", None, {"us-east-1"}),
    ({"provider": {"ignore": ["us-east-1"]}}, None, None, {"eu-north-1"}),
    ({"provider": None}, None, None, {"us-east-1", "eu-north-1"}),
    ({"provider": {"order": ["Azure"], "allow_fallbacks": True, "sort": "price"}}, None, None,
     {"us-east-1", "eu-north-1"}),
])
def test_where_a_request_may_be_served(asked: dict[str, Any], header: bytes | None, team: list[str] | None,
                                       allowed: set[str] | None) -> None:
    headers = {} if header is None else {b"x-meridian-region": header}
    assert allowed_regions(CHAT.read(body(**asked), {}, REQUEST_ID).fields, headers, team, REGIONS) == allowed


@pytest.mark.parametrize(("asked", "team", "status", "param"), [
    ({"provider": {"only": ["moon"]}}, None, 400, "provider.only"),
    ({"provider": {"only": ["us-east-1"]}}, ["eu-north-1"], 403, "provider.only"),
    ({"provider": {"max_price": {"prompt": 1}}}, None, 400, "provider"),
    ({"provider": {"only": "us-east-1"}}, None, 400, "provider.only"),
])
def test_a_region_that_cannot_be_is_refused_and_named(asked: dict[str, Any], team: list[str] | None, status: int,
                                                      param: str) -> None:
    with pytest.raises(Refusal) as caught:
        allowed_regions(CHAT.read(body(**asked), {}, REQUEST_ID).fields, {}, team, REGIONS)
    assert (caught.value.status, caught.value.param) == (status, param)


def test_repeated_stream_options_become_one() -> None:
    raw = b'{"model":"m","messages":[1],"stream":true,"stream_options":{},"stream_options":{"include_usage":true}}'
    assert [key for key, _ in pairs(sent(parse(raw, False)))].count("stream_options") == 1


def test_a_key_in_disguise_is_recognised() -> None:
    raw = b'{"model":"m","messages":[1],"nv\\u0065xt":{"token_data":[1]},"cache\\u005fsalt":"x"}'
    assert json.loads(sent(parse(raw, False))) == {"model": "m", "messages": [1]}


def test_null_stream_options_are_none() -> None:
    request = parse(body(stream=True, stream_options=None), False)
    assert json.loads(sent(request))["stream_options"] == SWITCHES["stream_options"]


@pytest.mark.parametrize(("options", "last", "each"), [
    (None, False, False), ({}, False, False), ({"include_usage": True}, True, False),
    ({"include_usage": True, "continuous_usage_stats": True}, True, True), ({"include_usage": None}, False, False),
])
def test_what_usage_the_client_wants(options: Any, last: bool, each: bool) -> None:
    request = parse(body(stream=True, stream_options=options), False)
    assert (request.wants_usage, request.asked.wants_each_usage) == (last, each)


def test_a_key_can_want_usage_for_its_client() -> None:
    assert parse(body(stream=True), True).wants_usage


def test_stream_null_is_unary() -> None:
    assert not parse(body(stream=None), False).asked.streamed


@pytest.mark.parametrize(("field", "value"), [
    ("model", 5), ("messages", {}), ("stream", 1), ("n", "2"), ("max_tokens", "9"), ("max_completion_tokens", []),
    ("temperature", "hot"), ("top_p", {}), ("seed", "x"), ("user", 5), ("tools", "f"), ("logprobs", "yes"),
    ("prompt_cache_key", 5),
])
def test_a_wrong_type_is_named(field: str, value: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse(body(**{field: value}), False)
    assert (refused.value.fault, refused.value.param) == (errors.INVALID_VALUE, field)
    assert field in refused.value.message


def test_a_completion_asks_for_log_probabilities_by_number() -> None:
    raw = json.dumps({"model": MODEL, "prompt": "x", "logprobs": 2}).encode()
    assert COMPLETIONS.read(raw, {}, REQUEST_ID).body == raw
    with pytest.raises(Refusal, match="logprobs"):
        COMPLETIONS.read(raw.replace(b": 2", b": true"), {}, REQUEST_ID)


@pytest.mark.parametrize(("field", "served", "refused"), [
    ("modalities", [None, ["text"]], [["text", "audio"], ["audio"], []]),
    ("web_search_options", [None], [{}, {"search_context_size": "low"}])])
def test_what_a_frontend_would_pass_over_in_a_chat_is_refused(
        field: str, served: list[Any], refused: list[Any]) -> None:
    for value in served:
        parse(body(**{field: value}), False)
    for value in refused:
        with pytest.raises(Refusal) as raised:
            parse(body(**{field: value}), False)
        assert (raised.value.fault, raised.value.param) == (errors.UNSUPPORTED_PARAMETER, field)


@pytest.mark.parametrize(("field", "served", "refused"), [
    ("echo", [None, False], [True]), ("suffix", [None, ""], ["x"]), ("best_of", [None, 2], [1, 3])])
def test_what_a_frontend_would_pass_over_in_a_completion_is_refused(
        field: str, served: list[Any], refused: list[Any]) -> None:
    def ask(value: object) -> Prepared:
        raw = json.dumps({"model": MODEL, "prompt": "x", "n": 2, field: value}).encode()
        return prepare(COMPLETIONS.read(raw, {}, REQUEST_ID), ROUTED, False)

    for value in served:
        ask(value)
    for value in refused:
        with pytest.raises(Refusal) as raised:
            ask(value)
        assert (raised.value.fault, raised.value.param) == (errors.UNSUPPORTED_PARAMETER, field)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(Refusal):
        parse(raw, False)


@given(st.binary(max_size=20))
def test_no_bytes_inside_a_good_body_do_worse_than_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(Refusal):
        json.loads(sent(parse(b'{"model":"m","messages":[' + raw + b'],"stream":true}', False)))
