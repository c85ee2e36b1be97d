"""The grammar service: what is left of a grammar once a text was delivered, over HTTP, beside an engine.

    POST /v1/residual   {"kind", "value", "delivered"} -> {"grammar"}, or {"error": {"code", "message"}}
    GET /healthz, /readyz, /metrics

Asked only when a constrained stream broke, so it is plain and small: a thread a connection, few of them, one grammar at
a time. It holds nothing, and writes down nothing of what it is sent.
"""

import json
import threading
from collections import Counter
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any

from pydantic import Field, JsonValue, ValidationError

from control_plane.contracts.clock import Clock
from control_plane.contracts.wire import Wire
from engine.grammar import binding
from engine.grammar.binding import GrammarRefused
from engine.grammar.ebnf import Unreadable
from engine.grammar.kinds import Kind, ebnf_of
from engine.grammar.residual import NotInGrammar, Undivided, residual

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_DELIVERED = 1_000_000
MAX_CONNECTIONS = 64
DEADLINE_S = 5.0
IDLE_S = 75.0
PATH = "/v1/residual"


class Question(Wire):
    """What the answer is held to, and what of it was delivered."""

    kind: Kind
    value: JsonValue = None
    delivered: str = Field(max_length=MAX_DELIVERED)


class Fault(StrEnum):
    """Why there is no grammar."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    NO_GRAMMAR = "no_grammar"
    NOT_IN_GRAMMAR = "not_in_grammar"
    UNDIVIDED = "undivided"
    TOO_SLOW = "too_slow"


class TooSlow(Exception):
    """The grammar was not there in time."""


STATUSES = {Fault.MALFORMED: HTTPStatus.BAD_REQUEST, Fault.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            Fault.TOO_SLOW: HTTPStatus.SERVICE_UNAVAILABLE}
FAULTS: dict[type[Exception], Fault] = {
    ValidationError: Fault.MALFORMED, GrammarRefused: Fault.NO_GRAMMAR, Unreadable: Fault.NO_GRAMMAR,
    NotInGrammar: Fault.NOT_IN_GRAMMAR, Undivided: Fault.UNDIVIDED, RecursionError: Fault.UNDIVIDED,
    TooSlow: Fault.TOO_SLOW}


class GrammarService(ThreadingHTTPServer):
    """Serves until it is shut down.

    Raises:
        OSError: the address cannot be bound.
    """

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], clock: Clock, deadline_s: float = DEADLINE_S) -> None:
        self._clock, self._deadline_s = clock, deadline_s
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._turn = threading.Lock()
        self.answers: Counter[str] = Counter()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Closes what is one connection too many."""
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A connection that broke is nobody's fault."""

    def answer(self, body: bytes) -> tuple[HTTPStatus, dict[str, JsonValue]]:
        """Status and document for one question."""
        status, document, result = self._answer(body)
        self.answers[result] += 1
        return status, document

    def _answer(self, body: bytes) -> tuple[HTTPStatus, dict[str, JsonValue], str]:
        try:
            return HTTPStatus.OK, {"grammar": self._residual(Question.model_validate_json(body))}, "ok"
        except tuple(FAULTS) as error:
            fault = next(fault for kind, fault in FAULTS.items() if isinstance(error, kind))
            message = "the question is malformed" if fault is Fault.MALFORMED else str(error)
            return (STATUSES.get(fault, HTTPStatus.UNPROCESSABLE_ENTITY),
                    {"error": {"code": fault.value, "message": message}}, fault.value)

    def _residual(self, question: Question) -> str:
        until_s = self._clock.monotonic_s() + self._deadline_s
        if not self._turn.acquire(timeout=self._deadline_s):
            raise TooSlow("others are before this question")
        try:
            return residual(ebnf_of(question.kind, question.value), question.delivered, binding.of_regex,
                            lambda: self._check(until_s))
        finally:
            self._turn.release()

    def _check(self, until_s: float) -> None:
        if self._clock.monotonic_s() > until_s:
            raise TooSlow(f"there is no grammar within {self._deadline_s:g} s")


class _Handler(BaseHTTPRequestHandler):
    """One connection; requests on it come one after the other."""

    server: GrammarService
    protocol_version = "HTTP/1.1"
    server_version = "meridian-grammar"
    sys_version = ""
    timeout = IDLE_S

    def do_GET(self) -> None:
        if self.path in ("/healthz", "/readyz"):
            self._send(HTTPStatus.OK, b"ok\n", "text/plain")
        elif self.path == "/metrics":
            name = "meridian_grammar_answers_total"
            lines = [f'{name}{{result="{result}"}} {count}\n' for result, count in sorted(self.server.answers.items())]
            self._send(HTTPStatus.OK, "".join([f"# TYPE {name} counter\n", *lines]).encode(), "text/plain")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not_found", "no such path")

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if self.path != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, "not_found", "no such path")
        elif not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED, Fault.MALFORMED, "the length is missing")
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(STATUSES[Fault.TOO_LARGE], Fault.TOO_LARGE, f"more than {MAX_BODY_BYTES} bytes")
        else:
            status, document = self.server.answer(self.rfile.read(int(length)))
            self._send(status, json.dumps(document).encode(), "application/json")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is asked is part of somebody's answer."""

    def _refuse(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answers without reading the body, so the connection ends with it."""
        self.close_connection = True
        self._send(status, json.dumps({"error": {"code": code, "message": message}}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)
