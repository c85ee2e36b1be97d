"""The Responses dialect, and the counting of a response's input tokens."""

from collections.abc import Mapping
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import json

from edge_api.dialects.base import Asked
from edge_api.dialects.responses.answer import begun, tell_answer
from edge_api.dialects.responses.request import translate
from edge_api.dialects.responses.shapes import ResponsesRequest
from edge_api.dialects.responses.stream import ResponsesVoice
from edge_api.dialects.strict import read_strictly
from edge_api.dialects.upstream_chat import asked_of
from edge_api.errors import Refusal, error_body

OWN_NAMES: Mapping[str, str] = {"max_tokens": "max_output_tokens", "messages": "input",
                                "response_format": "text.format", "reasoning_effort": "reasoning.effort"}
_decoder = json.Decoder(ResponsesRequest)


class Responses:
    """`POST /v1/responses`."""

    name = "responses"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        asked = read_strictly(_decoder, body)
        return asked_of(translate(asked), lambda: ResponsesVoice(begun(asked, request_id), request_id),
                        lambda answer: tell_answer(answer, begun(asked, request_id), request_id.hex))

    def refusal(self, refused: Refusal, request_id: UUID) -> tuple[int, bytes]:
        """As chat's; a field that has another name here is called by it."""
        param = refused.param
        if param is None or param not in OWN_NAMES:
            return refused.status, refused.body()
        message = refused.message.replace(f"'{param}'", f"'{OWN_NAMES[param]}'")
        return refused.status, error_body(refused.fault, message, OWN_NAMES[param], refused.metadata)


class TokenCount(msgspec.Struct):
    """How long a prompt is."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class InputTokens(Responses):
    """`POST /v1/responses/input_tokens`: the same prompt, to be asked for its ids alone."""

    name = "input_tokens"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        chat = translate(read_strictly(_decoder, body))
        chat.stream, chat.max_tokens = True, 1
        return asked_of(chat, counts=lambda input_tokens: json.encode(TokenCount(input_tokens)))


RESPONSES = Responses()
INPUT_TOKENS = InputTokens()
