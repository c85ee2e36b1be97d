"""What the scripted engine answers: a pure function of the prompt's token ids.

The prompt holds `SCRIPT` and a JSON object. A prompt that ends with a part of the answer is a resumed one: the answer
goes on from there, in whichever cluster it is asked. So a stream that was cut can be compared byte by byte with one
that was not.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from control_plane.contracts.wire import Document
from engine.sim.tokenizer import STOP_TOKENS, decode, encode, special_token_ids, token_bytes

MARK = "SCRIPT "
SPECIAL = special_token_ids()
ASSISTANT, USER, THINK = SPECIAL["<|assistant|>"], SPECIAL["<|user|>"], SPECIAL["<think>"]
END = SPECIAL[STOP_TOKENS[0]]
LINE_BREAK = ord("\n")


class ScriptRefused(Exception):
    """The prompt holds no script, or goes on otherwise than its script says."""


class Script(Document):
    """What to say and how fast: `wait_s` before the first token, `pace_s` before each one. `die_after` ends the worker
    process, as a crash would, once it has said so many tokens of the answer."""

    answer: str
    wait_s: float = 0.0
    pace_s: float = 0.0
    die_after: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The whole answer's ids, the end mark included, and how many of them the prompt holds already."""

    script: Script
    answer_ids: list[int]
    said: int


def task(prompt_ids: Sequence[int]) -> Task:
    """What is left to say after this prompt.

    Raises:
        ScriptRefused: no script is found, it is malformed, or the prompt does not end with a beginning of its answer.
    """
    ids = list(prompt_ids)
    if ASSISTANT in ids:  # a chat: the script is in the last user's message
        answer_at = len(ids) - ids[::-1].index(ASSISTANT)
        user_at = max((at for at in range(answer_at) if ids[at] == USER), default=0)
        script, _ = _read(decode(ids[user_at + 1:answer_at - 1]))
        answer_at += ids[answer_at:answer_at + 1] == [LINE_BREAK]
        # The template's, which opens a thought on demand; an answer that opens its own is for prompts that do not.
        answer_at += ids[answer_at:answer_at + 1] == [THINK] and not script.answer.startswith("<think>")
    else:
        text = decode(ids)
        script, end = _read(text)
        answer_at = _tokens_of(ids, len(text[:end].encode()))
    answer_ids = [*encode(script.answer), END]
    said = ids[answer_at:]
    if said != answer_ids[:len(said)] or len(said) >= len(answer_ids):
        raise ScriptRefused(f"the prompt goes on for {len(said)} tokens and not with the beginning of its answer")
    return Task(script, answer_ids, len(said))


def _read(text: str) -> tuple[Script, int]:
    """The last script in the text and where it ends."""
    at = text.rfind(MARK)
    if at < 0:
        raise ScriptRefused(f"no {MARK.strip()} in the prompt")
    try:
        document, end = json.JSONDecoder().raw_decode(text, at + len(MARK))
        return Script.model_validate(document), end
    except (json.JSONDecodeError, ValidationError) as error:
        raise ScriptRefused(f"malformed script: {type(error).__name__}") from None


def _tokens_of(ids: Sequence[int], size: int) -> int:
    """How many tokens make up the first `size` bytes."""
    for count, id in enumerate([*ids, END]):
        if size <= 0:
            return count
        size -= len(token_bytes(id))
    raise ScriptRefused("the script ends within a token")
