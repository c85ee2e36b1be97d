"""What the scripted engine answers to a prompt: the whole answer, the rest of it, or a refusal."""

import json

import pytest

from engine.script.script import END, ScriptRefused, Task, task
from engine.sim.tokenizer import decode, encode

CHAT = "[gMASK]<sop><|user|>\nPlease. {script}<|assistant|>\n"


def scripted(answer: str = "Hello there", **options: object) -> str:
    return "SCRIPT " + json.dumps({"answer": answer, **options})


def chat(text: str = "", thinking: bool = False) -> str:
    return CHAT.replace("{script}", text or scripted()) + ("<think>" if thinking else "")


def left(found: Task) -> str:
    return decode(found.answer_ids[found.said:-1])


def test_a_fresh_prompt_gets_the_whole_answer_and_the_end_mark() -> None:
    found = task(encode(chat()))
    assert (found.said, left(found), found.answer_ids[-1]) == (0, "Hello there", END)


@pytest.mark.parametrize("said", range(7))
@pytest.mark.parametrize("thinking", [False, True])
def test_a_prompt_that_ends_with_a_part_of_it_gets_the_rest(said: int, thinking: bool) -> None:
    whole = encode("Hello there")
    found = task(encode(chat(thinking=thinking)) + whole[:said])
    assert (found.said, found.answer_ids[found.said:-1]) == (said, whole[said:])


@pytest.mark.parametrize("answer", ["日本 🎉", "\n\n", "<think>so</think>", "a\tb", "}{", "SCRIPT"])
def test_every_text_can_be_cut_within_its_characters(answer: str) -> None:
    whole = encode(answer)
    for said in range(len(whole) + 1):
        found = task(encode(chat(scripted(answer))) + whole[:said])
        assert found.answer_ids[found.said:] == [*whole[said:], END]


def test_a_plain_prompt_goes_on_behind_its_script() -> None:
    whole = encode("Hello there")
    for said in range(len(whole) + 1):
        found = task(encode("日 " + scripted()) + whole[:said])
        assert (found.said, left(found)) == (said, decode(whole[said:]))


def test_the_last_users_script_counts() -> None:
    assert left(task(encode(chat(scripted("old")) + "old<|user|>\n" + scripted("new") + "<|assistant|>\n"))) == "new"


def test_the_answer_after_a_tools_result_is_found_too() -> None:
    later = "<tool_call>x</tool_call><|observation|>\n<tool_response>\n3\n</tool_response><|assistant|>\n"
    assert left(task(encode(chat(scripted("same")) + later))) == "same"


def test_text_behind_the_script_is_no_part_of_it() -> None:
    assert left(task(encode(chat(scripted() + " thank you")))) == "Hello there"


def test_pace_and_waits_are_the_scripts() -> None:
    found = task(encode(chat(scripted(wait_s=0.5, pace_s=0.01, die_after=3)))).script
    assert (found.wait_s, found.pace_s, found.die_after) == (0.5, 0.01, 3)


@pytest.mark.parametrize("prompt", [
    chat("hello"),
    chat('SCRIPT {"answer": 3}'),
    chat('SCRIPT {"answer": "x", "speed": 3}'),
    chat('SCRIPT {"answer": "x"'),
    "hello",
    chat() + "Hullo",
    chat() + "Hello there, you",
    chat() + "Hello there<|endoftext|>",
])
def test_a_prompt_without_a_script_or_beside_it_is_refused(prompt: str) -> None:
    with pytest.raises(ScriptRefused):
        task(encode(prompt))


def test_a_refusal_holds_nothing_of_the_prompt() -> None:
    with pytest.raises(ScriptRefused) as caught:
        task(encode(chat('SCRIPT {"answer": "SECRETPROMPT", "x": 1}')))
    assert "SECRETPROMPT" not in str(caught.value)
