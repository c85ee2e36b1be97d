"""Answers under a grammar go on in another cluster, with what its grammar service says is left of the grammar.

The scripted engine refuses to say what its request's grammar forbids, so each of these also proves the grammar.
"""

from typing import Any

import httpx
import pytest

from tests.engine.cluster import Cluster
from tests.engine.scripted import CHAT, COMPLETIONS, go_on, prompt_ids, say, script, seams, settled_text

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "sizes"], "properties": {
    "name": {"type": "string"}, "sizes": {"type": "array", "items": {"type": "integer"}},
    "kind": {"enum": ["big", "small"]}}}
ANSWER = '{"name": "Zoë \\"日本\\"", "sizes": [1, 20], "kind": "big"}'
AS_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
TOOLS = [{"type": "function", "function": {"name": "scale", "parameters": {
    "type": "object", "properties": {"to": {"type": "integer"}}, "required": ["to"]}}}]
CALL = "<tool_call>scale<arg_key>to</arg_key><arg_value>30</arg_value></tool_call>"

Clusters = tuple[Cluster, Cluster]


def what_is_left(cluster: Cluster, kind: str, value: object, delivered: str) -> str:
    url = cluster.plan.facts["test-script"].grammar_url
    answer = httpx.post(f"{url}/v1/residual", json={"kind": kind, "value": value, "delivered": delivered}, timeout=10)
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["grammar"]
    return found


@pytest.mark.parametrize(("answer", "path", "asked", "kind", "value"), [
    (ANSWER, CHAT, AS_SCHEMA, "json_schema", SCHEMA),
    ('{"any": ["é", 1.5e3]}', CHAT, {"response_format": {"type": "json_object"}}, "json_object", None),
    ("aab-12", CHAT, {"guided_regex": "a+b-[0-9]+"}, "regex", "a+b-[0-9]+"),
    ("perhaps", COMPLETIONS, {"guided_choice": ["yes", "perhaps"]}, "choice", ["yes", "perhaps"]),
    (ANSWER, COMPLETIONS, {"guided_json": SCHEMA}, "json_schema", SCHEMA),
])
def test_an_answer_cut_anywhere_goes_on_under_what_is_left(
        datacenters: Clusters, answer: str, path: str, asked: dict[str, Any], kind: str, value: object) -> None:
    first, second = datacenters
    whole = say(first.url, script(answer), path, **asked)
    assert whole.text == answer
    prompt = prompt_ids(second.url, script(answer), path)
    for ids in seams(whole):
        delivered = settled_text(whole, ids)
        rest = go_on(second.url, script(answer), ids, path, prompt_ids=prompt,
                     guided_grammar=what_is_left(second, kind, value, delivered))
        assert (delivered + rest.text, ids + rest.ids) == (answer, whole.ids)


def test_under_the_whole_grammar_it_would_not_go_on(datacenters: Clusters) -> None:
    whole = say(datacenters[0].url, script(ANSWER), **AS_SCHEMA)
    rest = go_on(datacenters[1].url, script(ANSWER), whole.ids[:5], **AS_SCHEMA)
    assert rest.events[0]["error"]["code"] == 400
    assert "does not fit" in rest.events[0]["error"]["message"]


def test_an_answer_after_its_reasoning_goes_on_too(datacenters: Clusters) -> None:
    first, second = datacenters
    thinking: dict[str, Any] = {"chat_template_args": {"enable_thinking": True}}
    message = script("hm, so {</think>" + ANSWER)
    whole = say(first.url, message, **AS_SCHEMA, **thinking)
    assert (whole.reasoning, whole.text) == ("hm, so {", ANSWER)
    prompt = prompt_ids(second.url, message, **thinking)
    thought = len(whole.ids) - len(say(first.url, script(ANSWER)).ids)
    inside = go_on(second.url, message, whole.ids[:2], prompt_ids=prompt, **AS_SCHEMA, **thinking)
    assert (inside.reasoning, inside.text) == (", so {", ANSWER)
    for settled in (thought, thought + 4):
        delivered = settled_text(whole, whole.ids[:settled])
        rest = go_on(second.url, message, whole.ids[:settled], prompt_ids=prompt,
                     guided_grammar=what_is_left(second, "json_schema", SCHEMA, delivered),
                     chat_template_args={"enable_thinking": False})
        assert (rest.reasoning, delivered + rest.text) == ("", ANSWER)


def test_a_thought_that_goes_on_with_a_bracket_is_taken_for_the_answer_under_a_response_format(
        datacenters: Clusters) -> None:
    first, second = datacenters
    thinking: dict[str, Any] = {"chat_template_args": {"enable_thinking": True}}
    message = script("hm {</think>" + ANSWER)
    ids = say(first.url, message, **AS_SCHEMA, **thinking).ids[:2]
    prompt = prompt_ids(second.url, message, **thinking)
    astray = go_on(second.url, message, ids, prompt_ids=prompt, **AS_SCHEMA, **thinking)
    assert (astray.reasoning, astray.text) == ("", " {</think>" + ANSWER)
    whole = go_on(second.url, message, ids, prompt_ids=prompt, guided_json=SCHEMA, **thinking)
    assert (whole.reasoning, whole.text) == (" {", ANSWER)


def test_a_call_cut_inside_goes_on_as_raw_text(datacenters: Clusters) -> None:
    first, second = datacenters
    message = script(CALL)
    whole = say(first.url, message, COMPLETIONS)
    prompt = prompt_ids(second.url, message, COMPLETIONS)
    use = {"parser": "glm47", "tools": TOOLS, "tool_choice": "required"}
    for ids in seams(whole):
        delivered = settled_text(whole, ids)
        rest = go_on(second.url, message, ids, COMPLETIONS, prompt_ids=prompt,
                     guided_grammar=what_is_left(second, "tools", use, delivered))
        assert delivered + rest.text == CALL
