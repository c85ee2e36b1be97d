"""The Messages dialect, and the counting of a message's tokens."""

from collections.abc import Mapping
from uuid import UUID

import msgspec
from msgspec import json

from edge_api.dialects.base import Asked
from edge_api.dialects.messages.answer import tell_answer
from edge_api.dialects.messages.errors import error_body, status_of
from edge_api.dialects.messages.request import manner_of, translate
from edge_api.dialects.messages.shapes import CountRequest, MessagesRequest
from edge_api.dialects.messages.stream import MessagesVoice
from edge_api.dialects.strict import read_strictly
from edge_api.dialects.upstream_chat import asked_of
from edge_api.errors import Refusal

_decoder = json.Decoder(MessagesRequest)
_count_decoder = json.Decoder(CountRequest)


class Messages:
    """`POST /v1/messages`."""

    name = "messages"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        asked = read_strictly(_decoder, body)
        manner = manner_of(asked)
        return asked_of(translate(asked), lambda: MessagesVoice(request_id, manner),
                        lambda answer: tell_answer(answer, request_id.hex, manner))

    def refusal(self, refused: Refusal, request_id: UUID) -> tuple[int, bytes]:
        return status_of(refused), error_body(refused, request_id)


class TokenCount(msgspec.Struct):
    """How long a prompt is."""

    input_tokens: int


class CountTokens(Messages):
    """`POST /v1/messages/count_tokens`: the same prompt, to be asked for its ids alone."""

    name = "count_tokens"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], request_id: UUID) -> Asked:
        chat = translate(read_strictly(_count_decoder, body))
        chat.stream, chat.max_tokens = True, 1
        return asked_of(chat, counts=lambda input_tokens: json.encode(TokenCount(input_tokens)))


MESSAGES = Messages()
COUNT_TOKENS = CountTokens()
