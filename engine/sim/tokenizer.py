"""The simulated engine's tokenizer: every byte is a token, and so are plain words.

The mocker answers with random token ids between 1,000 and 2,000, so each id there is an ordinary word with a space
before it and a stream reads as harmless word salad. The ids:

    0..255      the bytes, in the byte-level alphabet that GPT-2 made common
    256..999    words without a leading space, so that the first word of a text is one token too
    1000..      all words with a leading space
    then        the special tokens, in `SPECIAL_TOKENS`' order

It is a BPE without merges: a piece of text that is a known word is one token, anything else falls back to its bytes,
so every text round-trips.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

from pydantic import JsonValue

FIRST_BARE_WORD_ID = 256
FIRST_WORD_ID = 1000
END_OF_TEXT = "<|endoftext|>"
# What GLM's tokenizer has and its tool and reasoning parsers look for. True: cut from the text that clients see.
SPECIAL_TOKENS = {
    END_OF_TEXT: True,
    "[MASK]": True,
    "[gMASK]": True,
    "[sMASK]": True,
    "<sop>": True,
    "<eop>": True,
    "<|system|>": True,
    "<|user|>": True,
    "<|assistant|>": True,
    "<|observation|>": True,
    "<think>": False,
    "</think>": False,
    "<tool_call>": False,
    "</tool_call>": False,
    "<tool_response>": False,
    "</tool_response>": False,
    "<arg_key>": False,
    "</arg_key>": False,
    "<arg_value>": False,
    "</arg_value>": False,
}
STOP_TOKENS = (END_OF_TEXT, "<|user|>", "<|observation|>")


@cache
def words() -> tuple[str, ...]:
    """The words, sorted; the mocker's range of ids is why there are at least a thousand."""
    return tuple(resources.files("engine.sim").joinpath("words.txt").read_text("ascii").split())


@cache
def token_ids() -> dict[str, int]:
    """Every token but the special ones, by its text in the byte-level alphabet."""
    alphabet = _byte_alphabet()
    space = alphabet[ord(" ")]
    tokens = {alphabet[byte]: byte for byte in range(256)}
    # Words of one letter are bytes already.
    bare = [word for word in words() if len(word) > 1][: FIRST_WORD_ID - FIRST_BARE_WORD_ID]
    tokens |= {word: FIRST_BARE_WORD_ID + at for at, word in enumerate(bare)}
    return tokens | {space + word: FIRST_WORD_ID + at for at, word in enumerate(words())}


@cache
def special_token_ids() -> dict[str, int]:
    """The special tokens' ids: they follow the words."""
    return {token: FIRST_WORD_ID + len(words()) + at for at, token in enumerate(SPECIAL_TOKENS)}


def encode(text: str) -> list[int]:
    """The ids of a text. Not always the ones that the tokenizer's own rules choose, but always of the same text."""
    known = token_ids()
    special = special_token_ids()
    alphabet = _byte_alphabet()
    ids: list[int] = []
    for piece in re.findall("|".join([*map(re.escape, special), " ?[A-Za-z]+", "."]), text, re.DOTALL):
        characters = [alphabet[byte] for byte in piece.encode()]
        whole = special.get(piece, known.get("".join(characters)))
        ids += [whole] if whole is not None else [known[character] for character in characters]
    return ids


def token_bytes(id: int) -> bytes:
    """The bytes that a token stands for; a special token stands for its name."""
    return _every_token()[id]


def decode(ids: Iterable[int]) -> str:
    """The text of ids; bytes that are no UTF-8 become replacement characters."""
    return b"".join(map(token_bytes, ids)).decode("utf-8", "replace")


def tokenizer_json() -> dict[str, JsonValue]:
    """The contents of `tokenizer.json`."""
    byte_level: dict[str, JsonValue] = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": SPECIAL_TOKENS[token],
            }
            for token, id in special_token_ids().items()
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": dict(token_ids()),
            "merges": [],
        },
    }


@cache
def _every_token() -> dict[int, bytes]:
    byte_of = {character: byte for byte, character in enumerate(_byte_alphabet())}
    tokens = {id: bytes(byte_of[character] for character in token) for token, id in token_ids().items()}
    return tokens | {id: token.encode() for token, id in special_token_ids().items()}


def _byte_alphabet() -> list[str]:
    """A printable character for each byte: itself where it is printable in Latin-1, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
