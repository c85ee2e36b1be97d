"""The ways in which the load asks, and what an answer of each amounts to. Pure: bodies out, answers' bytes in.

The simulated engine says one plain word a token, and as many as it is asked for. So a client can count what was
delivered without believing anybody's count: words are tokens.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to ask: path, body of a question and a number of tokens, the words of an event or of a whole answer, and
    the marks of which one ends a whole stream."""

    path: str
    body: Callable[[str, int], Body]
    words: Callable[[Body], str]
    ends: tuple[bytes, ...] = ()

    @property
    def streamed(self) -> bool:
        return bool(self.ends)


def text_of(way: Way, body: bytes) -> str:
    """All the text in an answer, as far as it came."""
    if not way.streamed:
        return way.words(json.loads(body))
    return "".join(way.words(event) for event in events(body))


def is_whole(way: Way, body: bytes) -> bool:
    """Whether a stream says that it is over; a unary answer is whole when its length is."""
    return not way.streamed or any(end in body for end in way.ends)


def events(body: bytes) -> Iterator[Body]:
    """The JSON events of a stream; a line that was cut off is left out."""
    for line in body.split(b"\n")[:-1]:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def _chat(question: str, tokens: int) -> Body:
    return {"messages": [{"role": "user", "content": question}], "max_tokens": tokens}


def _completion(question: str, tokens: int) -> Body:
    return {"prompt": question, "max_tokens": tokens}


def _response(question: str, tokens: int) -> Body:
    return {"input": question, "max_output_tokens": tokens}


def _streamed(ask: Callable[[str, int], Body]) -> Callable[[str, int], Body]:
    return lambda question, tokens: ask(question, tokens) | {"stream": True}


def _message_words(answer: Body) -> str:
    return "".join(choice["message"].get("content") or "" for choice in answer["choices"])


def _delta_words(event: Body) -> str:
    return "".join(choice.get("delta", {}).get("content") or "" for choice in event.get("choices", ()))


def _text_words(event: Body) -> str:
    return "".join(choice.get("text") or "" for choice in event.get("choices", ()))


def _block_words(answer: Body) -> str:
    return "".join(block.get("text", "") for block in answer["content"])


def _block_delta_words(event: Body) -> str:
    return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""


def _output_words(answer: Body) -> str:
    return "".join(part.get("text", "") for item in answer["output"] for part in item.get("content", ()))


def _output_delta_words(event: Body) -> str:
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


DONE = (b"data: [DONE]\n\n",)
WAYS = {
    "chat": Way("/v1/chat/completions", _chat, _message_words),
    "chat stream": Way("/v1/chat/completions", _streamed(_chat), _delta_words, DONE),
    "completion stream": Way("/v1/completions", _streamed(_completion), _text_words, DONE),
    "message": Way("/v1/messages", _chat, _block_words),
    "message stream": Way("/v1/messages", _streamed(_chat), _block_delta_words, (b"event: message_stop\n",)),
    "response": Way("/v1/responses", _response, _output_words),
    "response stream": Way("/v1/responses", _streamed(_response), _output_delta_words,
                           (b"event: response.completed\n", b"event: response.incomplete\n")),
}
