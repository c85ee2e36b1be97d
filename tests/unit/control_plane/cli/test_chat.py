"""A question through the edge: the text on standard output, what it cost on standard error."""

import json
import socket

import pytest

from control_plane.cli.chat import ChatAnswer, footer
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import EdgeServer, Raw, stream

CHUNK = {"choices": [{"index": 0, "delta": {"content": "calm "}}]}
BROKEN = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
          "error": {"message": "upstream datacenter lost", "type": "server_error", "code": "upstream_unavailable"}}


def asked(edge: EdgeServer) -> dict[str, object]:
    body = json.loads(edge.calls[-1].body)
    assert isinstance(body, dict)
    return body


def test_the_text_alone_goes_to_standard_output(meridian: Meridian) -> None:
    ran = meridian("chat", "hello")
    assert (ran.code, ran.out) == (0, "calm harbour\n")


def test_what_it_used_goes_to_standard_error(meridian: Meridian) -> None:
    parts = meridian("chat", "hello").err.strip().split(" · ")
    assert [*parts[:2], *parts[3:]] == ["16 in (8 cached), 2 out", "$0.000014", "us-east-1", "019ac7"]


def test_a_stream_asks_for_its_usage(meridian: Meridian, edge: EdgeServer) -> None:
    meridian("chat", "hello")
    assert asked(edge) == {
        "model": "sim/glm-5.3", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 128,
        "stream": True, "stream_options": {"include_usage": True}}


def test_without_a_stream_the_answer_is_the_same(meridian: Meridian, edge: EdgeServer) -> None:
    ran = meridian("chat", "hello", "--no-stream", "--max-tokens", "5", "--model", "other")
    assert ran.out == "calm harbour\n"
    assert asked(edge) == {"model": "other", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_in_json_it_is_one_document_with_exact_money(meridian: Meridian, way: str) -> None:
    answer = meridian("chat", "hello", way, "-o", "json").json
    assert answer["text"] == "calm harbour"
    assert answer["finish_reason"] == "stop"
    assert answer["usage"]["cost"] == "0.000014"
    assert (answer["request_id"], answer["datacenter"]) == ("019ac7", "us-east-1")
    assert 0 < answer["ttft_ms"] <= answer["duration_ms"]


def test_words_cannot_steer_the_terminal(meridian: Meridian, edge: EdgeServer) -> None:
    edge.words = ("a\x1b[2Jb", "\r\x07c\n")
    assert meridian("chat", "hello").out == "a[2Jbc\n\n"


def test_a_wrong_key_is_one_clear_line(meridian: Meridian, edge: EdgeServer) -> None:
    meridian.point_at([], edge.url + "/v1", api_key="wrong")
    ran = meridian("chat", "hello")
    assert (ran.code, ran.out, ran.err) == (1, "", "error: Incorrect API key provided\n")


def test_an_error_in_json_keeps_the_edges_code(meridian: Meridian, edge: EdgeServer) -> None:
    meridian.point_at([], edge.url + "/v1", api_key="wrong")
    assert json.loads(meridian("chat", "hello", "-o", "json").err)["code"] == "invalid_api_key"


def test_an_error_of_another_shape_keeps_its_status(meridian: Meridian, edge: EdgeServer) -> None:
    edge.scripted.append(Raw(502, b"<html>"))
    ran = meridian("chat", "hello")
    assert (ran.code, ran.err) == (1, "error: the edge answered HTTP 502\n")


def test_a_stream_that_reports_an_error_is_exit_code_five(meridian: Meridian, edge: EdgeServer) -> None:
    edge.scripted.append(stream([CHUNK, BROKEN], end=False))
    ran = meridian("chat", "hello")
    assert (ran.code, ran.out) == (5, "calm \n")
    assert ran.err.splitlines()[-1] == "error: the answer broke off: upstream datacenter lost"


def test_a_stream_without_an_end_is_exit_code_five(meridian: Meridian, edge: EdgeServer) -> None:
    edge.scripted.append(stream([CHUNK], end=False))
    assert meridian("chat", "hello").err.splitlines()[-1] == "error: the answer broke off without an end"


def test_a_connection_that_breaks_is_exit_code_five(meridian: Meridian, edge: EdgeServer) -> None:
    edge.scripted.append(stream([CHUNK], end=False, cut=True))
    ran = meridian("chat", "hello")
    assert (ran.code, ran.out) == (5, "calm \n")
    assert "connection lost" in ran.err


def test_an_answer_that_is_no_json_is_said_so(meridian: Meridian, edge: EdgeServer) -> None:
    edge.scripted.append(Raw(200, b"hello"))
    ran = meridian("chat", "hello")
    assert (ran.code, ran.err) == (1, "error: the edge answered something that is no JSON: compare the versions\n")


def test_an_edge_that_is_away_is_said_so(meridian: Meridian) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    meridian.point_at([], url)
    ran = meridian("chat", "hello")
    assert ran.code == 1
    assert ran.err == f"error: no answer from the edge at {url} (connection refused): is the stack up?\n"


def test_without_a_model_it_asks_for_one(meridian: Meridian, edge: EdgeServer) -> None:
    (meridian.state / "local.json").write_text(json.dumps({"edge_url": edge.url, "api_key": "k"}))
    assert meridian("chat", "hello").err == "error: no model is known here: name one with --model\n"


def test_what_the_edge_did_not_report_is_a_dash() -> None:
    answer = ChatAnswer(text="", model="m", finish_reason=None, usage=None, request_id=None, datacenter=None,
                        ttft_ms=None, duration_ms=1_200)
    assert footer(answer) == "– in, – out · 1.2s"  # noqa: RUF001
