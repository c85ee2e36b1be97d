"""The simulated model's directory, read with the `tokenizers` library as Dynamo reads it."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.sim import model_dir
from engine.sim.tokenizer import FIRST_WORD_ID, SPECIAL_TOKENS, STOP_TOKENS, tokenizer_json, words

TOKENIZER = Tokenizer.from_str(json.dumps(tokenizer_json()))
SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))


@given(text=st.text(max_size=200).filter(lambda text: not SPECIAL.search(text)))
def test_every_text_round_trips(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("text", [
    "".join(map(chr, range(128))), "Grüße, 世界! 🎉\u200d\n\n\t  two  spaces", "don't  STOP", " ", "",
    'def f(x):\n    return {"a": [1, 2.5, null]}\n',
])
def test_awkward_texts_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_each_byte_is_its_own_token() -> None:
    assert TOKENIZER.encode("AZ~").ids == [65, 90, 126]
    assert TOKENIZER.encode("é").ids == list("é".encode())


def test_the_ids_that_the_mocker_draws_are_plain_words_with_a_space() -> None:
    drawn = [TOKENIZER.decode([id]) for id in range(1000, 2000)]
    assert all(re.fullmatch(r" [a-z]+", text) for text in drawn)
    assert len(set(drawn)) == 1000


def test_a_known_word_is_one_token_and_comes_back_as_the_same_one() -> None:
    ids = list(range(FIRST_WORD_ID, FIRST_WORD_ID + len(words())))
    assert TOKENIZER.encode(TOKENIZER.decode(ids)).ids == ids


def test_the_words_are_distinct_sorted_and_lower_case() -> None:
    assert list(words()) == sorted(set(words()))
    assert all(re.fullmatch(r"[a-z]+", word) for word in words())


def test_every_id_below_the_vocabularys_size_is_taken_once() -> None:
    vocabulary = TOKENIZER.get_vocab(with_added_tokens=True)
    assert sorted(vocabulary.values()) == list(range(TOKENIZER.get_vocab_size()))


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_special_token_is_one_token_wherever_it_stands(token: str) -> None:
    assert TOKENIZER.encode(f"apple{token}tree").tokens.count(token) == 1


def test_tool_and_thought_marks_stay_in_the_text_for_the_parsers() -> None:
    text = "<think>x</think><tool_call>y</tool_call>"
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=True) == text


def test_the_directory_is_named_by_its_contents(tmp_path: Path) -> None:
    first = model_dir.ensure(tmp_path, 1000)
    assert model_dir.ensure(tmp_path / "other", 1000).name == first.name
    assert model_dir.ensure(tmp_path, 2000).name != first.name


def test_an_existing_directory_is_left_as_it_is(tmp_path: Path) -> None:
    first = model_dir.ensure(tmp_path, 1000)
    before = {path.name: path.stat().st_mtime_ns for path in first.iterdir()}
    assert model_dir.ensure(tmp_path, 1000) == first
    assert {path.name: path.stat().st_mtime_ns for path in first.iterdir()} == before


def test_two_who_make_it_at_once_both_get_the_whole_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(lambda _: model_dir.ensure(tmp_path, 1000), range(8)))
    assert [path.name for path in tmp_path.iterdir()] == [made.pop().name]
    assert not made


def test_a_directory_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(FileExistsError):
        model_dir.ensure(blocked, 1000)
    assert os.listdir(tmp_path) == ["file"]


def test_the_files_agree_on_stop_tokens_and_window(tmp_path: Path) -> None:
    made = model_dir.ensure(tmp_path, 4096)
    config = json.loads((made / "config.json").read_text())
    generation = json.loads((made / "generation_config.json").read_text())
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    assert config["eos_token_id"] == generation["eos_token_id"] == [tokenizer.token_to_id(t) for t in STOP_TOKENS]
    assert config["vocab_size"] == tokenizer.get_vocab_size()
    assert config["max_position_embeddings"] == 4096
    assert json.loads((made / "tokenizer_config.json").read_text())["model_max_length"] == 4096
