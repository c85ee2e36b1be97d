"""The grammar service over real sockets: what it answers, what it refuses, and what it bounds."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from control_plane.contracts.clock import ManualClock, SystemClock
from engine.grammar.matcher import Matcher
from engine.grammar.service import MAX_BODY_BYTES, MAX_CONNECTIONS, GrammarService
from infra.local.ports import free_port
from tests.engine.cluster import wait_for

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture
def service() -> Iterator[GrammarService]:
    yield from running(GrammarService(("127.0.0.1", 0), SystemClock()))


def running(service: GrammarService) -> Iterator[GrammarService]:
    thread = threading.Thread(target=service.serve_forever, args=(0.02,))
    with service:
        thread.start()
        yield service
        service.shutdown()
    thread.join()


def url(service: GrammarService) -> str:
    return f"http://127.0.0.1:{service.server_address[1]}"


def ask(service: GrammarService, **question: Any) -> httpx.Response:
    return httpx.post(f"{url(service)}/v1/residual", json=question, timeout=10)


def test_it_answers_what_is_left(service: GrammarService) -> None:
    answer = ask(service, kind="json_schema", value=SCHEMA, delivered='{"a": 1')
    assert answer.status_code == 200
    matcher = Matcher(answer.json()["grammar"])
    assert matcher.take("2}")
    assert matcher.is_complete


def test_questions_follow_each_other_on_one_connection(service: GrammarService) -> None:
    with httpx.Client(base_url=url(service), timeout=10) as client:
        question = {"kind": "choice", "value": ["yes", "no"], "delivered": "y"}
        answers = [client.post("/v1/residual", json=question).json() for _ in range(3)]
    assert answers == [{"grammar": 'root ::= "es"\n'}] * 3


@pytest.mark.parametrize(("question", "status", "code"), [
    ({"kind": "choice", "value": ["yes"], "delivered": "n"}, 422, "not_in_grammar"),
    ({"kind": "regex", "value": "(", "delivered": ""}, 422, "no_grammar"),
    ({"kind": "ebnf", "value": 'root ::= root "a" | "b"', "delivered": "b"}, 422, "undivided"),
    ({"kind": "nobody", "delivered": ""}, 400, "malformed"),
    ({"kind": "json_object"}, 400, "malformed"),
    ({"kind": "json_object", "delivered": "x" * 1_000_001}, 400, "malformed"),
])
def test_a_refusal_says_why(service: GrammarService, question: dict[str, Any], status: int, code: str) -> None:
    answer = ask(service, **question)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"kind": "json_object", "delivered": "\\ud800"}',
                                  b'{"kind": "json_schema", "delivered": "", "value": ' + b"[" * 100_000])
def test_a_body_that_is_no_question_is_refused(service: GrammarService, body: bytes) -> None:
    answer = httpx.post(f"{url(service)}/v1/residual", content=body, timeout=10)
    assert answer.status_code == 400


def test_a_schema_as_deep_as_json_allows_harms_nothing(service: GrammarService) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(150):
        schema = {"type": "array", "items": schema}
    assert ask(service, kind="json_schema", value=schema, delivered="[[").status_code in (200, 422)
    assert ask(service, kind="json_object", delivered="{").status_code == 200


def test_a_grammar_that_takes_too_long_is_given_up() -> None:
    for service in running(GrammarService(("127.0.0.1", 0), SystemClock(), deadline_s=0.3)):
        ebnf = 'root ::= x x x x x x x x "z"\nx ::= "a" x "b" | "a" x "c" | "a" x x | "a" | ""'
        answer = ask(service, kind="ebnf", value=ebnf, delivered="a" * 5000)
        assert (answer.status_code, answer.json()["error"]["code"]) in ((503, "too_slow"), (422, "undivided"))


def test_a_grammar_of_very_many_rules_is_given_up_before_anything_is_derived() -> None:
    rules = [f"r{at} ::= r{at + 1}" for at in range(20_000)]
    ebnf = "\n".join([*rules, 'r20000 ::= "a" | ""', "root ::= r0"])
    for service in running(GrammarService(("127.0.0.1", 0), SystemClock(), deadline_s=0.5)):
        began_s = time.monotonic()
        answer = ask(service, kind="ebnf", value=ebnf, delivered="")
        assert (answer.status_code, time.monotonic() - began_s < 5) == (503, True)


def test_the_deadline_is_the_clocks() -> None:
    clock = ManualClock()
    for service in running(GrammarService(("127.0.0.1", 0), clock, deadline_s=-1.0)):
        answer = ask(service, kind="json_object", delivered="{")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_slow")


def test_a_body_that_is_too_large_is_not_read(service: GrammarService) -> None:
    head = f"POST /v1/residual HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_BODY_BYTES + 1}\r\n\r\n"
    assert raw(service, head).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("head", "status"), [
    ("POST /v1/residual HTTP/1.1\r\nhost: x\r\n\r\n", b"411"),
    ("POST /v1/residual HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", b"411"),
    ("POST /other HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n", b"404"),
    ("GET /v1/residual HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
    ("DELETE /v1/residual HTTP/1.1\r\nhost: x\r\n\r\n", b"501"),
])
def test_other_requests_are_refused_and_end_the_connection(service: GrammarService, head: str, status: bytes) -> None:
    assert raw(service, head).split()[1] == status


def test_only_so_many_may_be_connected(service: GrammarService) -> None:
    address = ("127.0.0.1", service.server_address[1])
    held = [socket.create_connection(address, timeout=5) for _ in range(MAX_CONNECTIONS)]
    try:
        wait_for(lambda: threading.active_count() >= MAX_CONNECTIONS, "the connections to be taken", 5)
        with socket.create_connection(address, timeout=5) as late:
            assert late.recv(1) == b""
    finally:
        for connection in held:
            connection.close()
    wait_for(lambda: _serves(service), "a free place", 5)


def test_it_counts_its_answers(service: GrammarService) -> None:
    ask(service, kind="json_object", delivered="{")
    ask(service, kind="json_object", delivered="x")
    text = httpx.get(f"{url(service)}/metrics", timeout=5).text
    assert 'meridian_grammar_answers_total{result="ok"} 1\n' in text
    assert 'meridian_grammar_answers_total{result="not_in_grammar"} 1\n' in text


def test_the_process_serves_until_it_is_told_to_end_and_writes_nothing_down() -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", "engine.grammar", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: _status(f"http://127.0.0.1:{port}/healthz") == 200, "the service", 10)
        question = {"kind": "regex", "value": "SECRETPROMPT(", "delivered": "SECRETPROMPT"}
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/residual", json=question, timeout=5)
        assert "SECRET" not in json.dumps(answer.json())
        process.terminate()
        output, _ = process.communicate(timeout=5)
    finally:
        process.kill()
        process.wait(5)
    assert (process.returncode, output) == (0, b"")


def raw(service: GrammarService, head: str) -> bytes:
    """All that comes back before the connection is closed."""
    with socket.create_connection(("127.0.0.1", service.server_address[1]), timeout=5) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
    return found


def _serves(service: GrammarService) -> bool:
    try:
        return ask(service, kind="json_object", delivered="{").status_code == 200
    except httpx.HTTPError:
        return False


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0
