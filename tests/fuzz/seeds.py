"""Where each fuzzer begins: what is usual, what once was wrong, and what a fuzzer would take long to think of.

All of it is run by the ordinary tests; whatever a campaign finds is added here.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.fuzz.harnesses import CHAT, NEXT, RECORD
from tests.fuzz.small_edge import KEY, STREAM, USAGE, WHOLE, chunked, event

HEAD = b"host: e\r\nauthorization: Bearer " + KEY.encode() + b"\r\n"
PLAIN = b"\0\0\0"


def post(path: str, body: object, headers: bytes = b"", head: bytes = HEAD) -> bytes:
    """A request as most are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST %b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n%b" % (path.encode(), head, headers, len(raw), raw)


def chunks(path: str, body: object, extension: bytes = b"", trailers: bytes = b"", version: bytes = b"1.1") -> bytes:
    """The same in chunks."""
    raw = json.dumps(body).encode()
    return (b"POST %b HTTP/%b\r\n%btransfer-encoding: chunked\r\n\r\n%x%b\r\n%b\r\n0\r\n%b\r\n"
            % (path.encode(), version, HEAD, len(raw), extension, raw, trailers))


ASK = post("/v1/chat/completions", CHAT)
STREAMED = post("/v1/chat/completions", CHAT | {"stream": True})
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BODIES: list[tuple[str, Any]] = [
    ("/v1/chat/completions", CHAT | {"stream": True, "n": 2, "tools": [TOOL], "response_format": {"type": "text"}}),
    ("/v1/completions", {"model": CHAT["model"], "prompt": ["a", "b"], "stop": [" x"], "stream": True}),
    ("/v1/messages", CHAT | {"stream": True, "system": [{"type": "text", "text": "s"}], "thinking": {
        "type": "enabled", "budget_tokens": 1_024}, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    ("/v1/messages/count_tokens", CHAT),
    ("/v1/messages", CHAT | {"messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": "x"}, {"type": "text", "text": "y"}]}]}),
    ("/v1/responses", {"model": CHAT["model"], "input": [{"role": "user", "content": "hi"}], "stream": True,
                       "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}),
    ("/v1/responses", {"model": CHAT["model"], "input": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"}]}),
    ("/v1/embeddings", {"model": CHAT["model"], "input": [[1, 2], [3]]}),
]
CLIENT = [
    ASK, STREAMED, ASK + STREAMED + ASK, chunks("/v1/chat/completions", CHAT), b"\r\n\r\n" + ASK, ASK[:60], ASK[:-5],
    chunks("/v1/chat/completions", CHAT, b';a="b;c"', b"x: y\r\n"), chunks("/v1/messages", CHAT, version=b"1.0"),
    chunks("/v1/chat/completions", CHAT, trailers=b"content-length: 5\r\n"),
    post("/v1/chat/completions", CHAT, b"expect: 100-continue\r\n"), post("/v1/messages", CHAT, head=b"host: e\r\n"),
    post("/v1/chat/completions", CHAT, b"transfer-encoding: chunked\r\n"),
    post("/v1/chat/completions", CHAT, b"transfer-encoding: gzip, chunked\r\n"),
    post("/v1/chat/completions", CHAT, b"content-length: 5\r\n"), post("/v1/chat/completions", CHAT, b"x: a\r\n b\r\n"),
    post("/v1/chat/completions", CHAT, b"x: a\rb: c\r\n"), post("/v1/chat/completions", CHAT, b"x: a\nb: c\r\n"),
    post("/v1/chat/completions", CHAT, b"upgrade: h2c\r\nconnection: upgrade\r\n"),
    post("/v1/messages", CHAT, b"x-prime-team-id: other\r\nx-session-id: s\r\ntraceparent: 00-evil\r\n"),
    post("/v1/chat/completions", b'{"model": "x", '), post("/v1/messages", b"[]"), post("/v1/responses", b"\xff"),
    b"GET /v1/models HTTP/1.1\r\nhost: e\r\n\r\n" * 6, b"GET /v1/models\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n\r\n",
    b"GET /v1/models/sim%2Fglm-5.3 HTTP/1.0\r\n\r\n", b"HEAD /v1/models HTTP/1.1\r\n\r\n" + ASK,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"GET http://[ HTTP/1.1\r\n\r\n",
    ASK.replace(b"/v1/", b"http://e/v1/"), ASK.replace(b"\r\n", b"\n"), ASK.replace(b"HTTP/1.1", b"HTTP/2.0"),
    *[post(path, body) for path, body in BODIES],
]
ERROR = b'data: {"error":{"message":"engine died","code":500}}\n\n'
TOLD = [
    WHOLE, WHOLE[:-9], b"[]", b"{}", b'{"usage":{}}', b'{"choices":[],"usage":null,"nvext":{"a":{}}}', STREAM,
    STREAM[:-20], STREAM.replace(b"\n", b"\r\n"), STREAM.replace(b"data: [DONE]\n\n", b""), ERROR, STREAM[:200] + ERROR,
    b": keep-alive\n\n" + STREAM, b"event: error\ndata: \"no\"\n\n", b"data: [DONE]\n\n", b"data: \n\n", b"data:{}\n\n",
    event(choices=[{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {
        "name": "f", "arguments": "{"}}]}}], nvext={"completion_token_ids": [1, 2]}) + STREAM,
    event(choices=[{"index": 0, "delta": {"reasoning_content": "r"}}], usage=USAGE) + STREAM,
    b'data: {"usage":{"prompt_tokens":1e99,"completion_tokens":-1},"choices":[]}\n\n' + STREAM,
]


def _answers(told: bytes) -> list[bytes]:
    length = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(told), told)
    return [chunked(told), length, length.replace(b"content-length", b"x"), chunked(told)[:-7]]


UPSTREAM = [answer for told in TOLD for answer in _answers(told)] + [
    b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(STREAM), b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 429 X\r\nretry-after: 86400\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 204 X\r\n\r\n", b"no\r\n\r\n",
    b"HTTP/1.1 400 X\r\ncontent-length: 28\r\n\r\n{\"message\":\"no\",\"type\":\"Bad\"}"[:-1], chunked(STREAM) * 2,
    b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", b"HTTP/1.1 302 X\r\nlocation: http://a\r\n\r\n"]

SEEDS: Mapping[str, list[bytes]] = {
    "client": [PLAIN + sent for sent in CLIENT] + [bytes([n, n % 3 * 40, 0]) + STREAMED + ASK for n in range(9)]
    + [bytes([2, 80, 0]) + STREAMED + ASK.replace(b"/v1/", b"/v0/"), bytes([7, 40, 0]) + STREAMED + ASK[:20] + b"0",
       PLAIN + b"\n", b"\x04\x28\0" + b"\r" * 40 + STREAMED, PLAIN + b"GET http://2 HTTP/1.1\r\n\r\n"]
    + [b"\0\0\x10" + NEXT.join(asked) for asked in (
        [ASK] * 3, [ASK, STREAMED, ASK], [ASK, ASK + ASK, ASK], [ASK, ASK[:-9], ASK[-9:]], [ASK, ASK + b"\r\n", ASK],
        [ASK, ASK[:-1] + b"GET", ASK], [STREAMED, STREAMED + ASK[:50], ASK[50:]], [ASK, b"\r\n", ASK, b"x", ASK],
        [ASK, ASK.replace(b"content-length", b"Content-Length"), ASK.replace(b"host: e", b"host: f")],
        [ASK, ASK.replace(b"content-length: ", b"content-length: 0"), ASK.replace(b"content-length: ", b"x: ")],
        [ASK, ASK.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n"), ASK],
        [post("/v1/messages", CHAT)] * 2, [post("/v1/messages/count_tokens", CHAT)] * 2 + [ASK])]
    + [b"\0\0\1" + STREAMED, b"\0\0\2" + STREAMED, b"\x08\0\2" + STREAMED, b"\0\x01\0" + STREAMED[:90]],
    "upstream": [bytes([n % 10 | (n & 1) << 6, n % 4 * 11]) + said for n, said in enumerate(UPSTREAM)]
    + [bytes([kind, 0]) + chunked(said) for kind in range(10) for said in (STREAM, WHOLE, ERROR)]
    + [bytes([kind | 0x20, 0]) + said + NEXT + again for kind in range(10) for said, again in (
        (_answers(WHOLE)[1], _answers(WHOLE)[1]), (_answers(WHOLE)[1], _answers(b"{}")[1]),
        (_answers(WHOLE)[1], _answers(WHOLE)[1][:-9]), (_answers(WHOLE)[1], _answers(WHOLE)[1] + b"HTTP/1.1 200 X"),
        (_answers(WHOLE)[1], _answers(WHOLE)[1].replace(b" 200 ", b" 500 ")), (chunked(STREAM), chunked(STREAM)))]
    + [bytes([kind | 0x40, 0]) + chunked(STREAM)[:cut] + NEXT + chunked(said) for kind in (1, 2, 3, 5, 8)
       for cut in (320, 420) for said in (STREAM, STREAM[210:], ERROR, STREAM.replace(b" b", b" c"))],
    "events": [bytes([n]) + told for n, told in enumerate(TOLD)] + [b"\7" + told + told for told in TOLD]
    + [b"\7" + STREAM.replace(b"\n\n", b"\r\r") + b"data: x"],
    "frames": [b"", RECORD, RECORD * 2, RECORD[:-1], RECORD[1:], RECORD[:9] + RECORD, b"\xf5MU\x01", b"x" + RECORD],
    "dialects": [bytes([n]) + json.dumps(body).encode() for n in range(14) for _, body in BODIES]
    + [bytes([n]) + raw for n in range(14) for raw in (b"", b"{}", b"[" * 500, b'{"model":"m","messages":[1]}')],
}
# What a fuzzer puts in by itself, in the form of libFuzzer's dictionaries.
WORDS = [
    b"POST /v1/messages HTTP/1.1\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n", b"\r\n",
    b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"HTTP/1.0", b"data: ", b"[DONE]", b"event: error\n",
    b'"usage":', b'"nvext":{"completion_token_ids":[', b'"choices":[', b'"delta":{', b'"tool_calls":[',
    b'"model":"sim/glm-5.3"', b'"messages":[{"role":"user","content":"', b'"input":', b'"error":',
    b'"finish_reason":"stop"', b'"stream":true', b"\n\n",
    b'"type":"tool_result"', b'"type":"function_call_output"', b'"stream_options":{"include_usage":true}', b"null",
    b'"index":', b'"function":{"name":"f","arguments":"', b'"reasoning_content":"', b"\xf5MU\x01", b"\\u0000", b"1e999"]
