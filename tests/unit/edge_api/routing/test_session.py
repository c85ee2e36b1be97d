"""The session key: the client's own name for it, else what stays the same while a conversation grows."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_api.hot.fields import ChatFields
from edge_api.routing.session import parent_key, session_key

SYSTEM = {"role": "system", "content": "You are terse."}
USER = {"role": "user", "content": "Name a river."}
ANSWER = {"role": "assistant", "content": "Volga {and} \"more\"}"}
MORE = {"role": "user", "content": "Another one."}
text = st.text(max_size=2_000)


def key(messages: list[dict[str, Any]], headers: dict[bytes, bytes] | None = None, team: str = "team_1",
        **fields: Any) -> str:
    body = json.dumps({"model": "sim/glm-5.3", "messages": messages, **fields}).encode()
    return session_key(headers or {}, msgspec.json.decode(body, type=ChatFields), team)


def test_every_turn_of_a_conversation_has_the_same_key() -> None:
    turns = [[SYSTEM, USER], [SYSTEM, USER, ANSWER, MORE], [SYSTEM, USER, ANSWER, MORE, ANSWER, MORE]]
    assert len({key(turn) for turn in turns}) == 1


@given(text, text, text)
def test_every_turn_has_the_same_key_whatever_is_said(system: str, question: str, answer: str) -> None:
    opening = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    grown = [*opening, {"content": answer, "role": "assistant"}, {"role": "user", "content": question}]
    assert key(opening) == key(grown)


def test_another_first_question_is_another_session() -> None:
    assert key([SYSTEM, USER]) != key([SYSTEM, MORE])


def test_long_openings_that_differ_at_the_end_are_different_sessions() -> None:
    first, second = ({"role": "user", "content": "x" * 50_000 + end} for end in "ab")
    assert key([first]) != key([second])


def test_prose_about_assistants_does_not_end_the_opening() -> None:
    first = {"role": "user", "content": 'Say "assistant" twice: a'}
    second = {"role": "user", "content": 'Say "assistant" twice: b'}
    assert key([SYSTEM, first]) != key([SYSTEM, second])


def test_other_tools_are_another_session() -> None:
    read, write = ({"type": "function", "function": {"name": name}} for name in ("read", "write"))
    openings = [key([USER]), key([USER], tools=[read]), key([USER], tools=[read, write]), key([USER], tools=[write])]
    assert len(set(openings)) == 4


def test_the_same_tools_are_the_same_session_in_every_turn() -> None:
    tools = [{"type": "function", "function": {"name": "read", "description": "x" * 9_000}}]
    assert key([USER], tools=tools) == key([USER, ANSWER, MORE], tools=tools)


def test_another_model_is_another_session() -> None:
    assert key([USER]) != key([USER], model="sim/other")


def test_teams_never_share_a_key() -> None:
    assert key([USER], team="team_1") != key([USER], team="team_2")
    assert key([USER], team="team_1", prompt_cache_key="x") != key([USER], team="team_2", prompt_cache_key="x")


@pytest.mark.parametrize("field", ["prompt_cache_key", "session_id"])
def test_a_named_session_is_the_same_whatever_is_said(field: str) -> None:
    first: dict[str, Any] = {field: "s-1"}
    second: dict[str, Any] = {field: "s-2"}
    assert key([USER], **first) == key([MORE, ANSWER], **first)
    assert key([USER], **first) != key([USER], **second)


@pytest.mark.parametrize("header", [
    b"x-session-id", b"x-dynamo-session-id", b"session-id", b"x-claude-code-session-id", b"x-claude-code-agent-id"])
def test_agents_headers_name_the_session(header: bytes) -> None:
    assert key([USER], {header: b"s-1"}) == key([MORE], {header: b"s-1"})
    assert key([USER], {header: b"s-1"}) != key([USER], {header: b"s-2"})


def test_the_same_name_is_the_same_session_wherever_it_is_written() -> None:
    assert key([USER], prompt_cache_key="s-1") == key([USER], {b"x-session-id": b"s-1"})


def test_the_cache_key_wins_over_headers() -> None:
    assert key([USER], {b"x-session-id": b"other"}, prompt_cache_key="s-1") == key([USER], prompt_cache_key="s-1")


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_name_names_nothing(empty: str | None) -> None:
    assert key([USER], prompt_cache_key=empty) == key([USER])


@given(st.text(max_size=10_000), text)
def test_a_key_is_short_and_plain_whatever_the_client_sends(name: str, question: str) -> None:
    made = key([{"role": "user", "content": question}], prompt_cache_key=name)
    assert len(made) == 32
    assert made.isalnum()


def test_an_agents_helper_has_a_session_of_its_own_and_a_parent() -> None:
    main = {b"x-claude-code-session-id": b"s-1", b"x-claude-code-agent-id": b"main"}
    part = {b"x-claude-code-session-id": b"s-1", b"x-claude-code-agent-id": b"part",
            b"x-claude-code-parent-agent-id": b"main"}
    assert key([USER], part) != key([USER], main)
    assert parent_key(part, "team_1") == key([USER], main)


@pytest.mark.parametrize("header", [b"x-parent-session-id", b"x-dynamo-parent-session-id"])
def test_a_parent_is_the_session_of_that_name(header: bytes) -> None:
    assert parent_key({header: b"s-1"}, "team_1") == key([USER], {b"x-session-id": b"s-1"})


@pytest.mark.parametrize("headers", [{}, {b"x-session-id": b"s-1"}, {b"x-parent-session-id": b""}])
def test_most_sessions_have_no_parent(headers: dict[bytes, bytes]) -> None:
    assert parent_key(headers, "team_1") == ""


def test_parents_are_never_shared_between_teams() -> None:
    headers = {b"x-parent-session-id": b"s-1"}
    assert parent_key(headers, "team_1") != parent_key(headers, "team_2")
