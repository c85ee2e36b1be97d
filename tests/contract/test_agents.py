"""Requests as coding agents make them, with every field that they are known to send."""

from typing import Any

from tests.contract.clients import Clients
from tests.contract.scripted import call, say, schema
from tests.engine.cluster import MODEL

THOUGHT, ANSWER = "hm", "I look first."
COMMAND = schema(command="string")
MARK: Any = {"type": "ephemeral", "ttl": "1h"}


def words(answer: str) -> str:
    return str(say(f"{THOUGHT}</think>{answer}")[0]["content"])


def test_claude_code_is_served(scripted_clients: Clients) -> None:
    asked: Any = {
        "model": f"claude-compat/{MODEL}", "max_tokens": 32_000, "thinking": {"type": "adaptive"},
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=00000;"},
                   {"type": "text", "text": "You are an agent.", "cache_control": MARK}],
        "tools": [{"name": "Bash", "description": "Runs.", "input_schema": COMMAND, "cache_control": MARK}],
        "metadata": {"user_id": "user_1_session_2"}, "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "betas": ["claude-code-20250219", "interleaved-thinking-2025-05-14"],
        "extra_headers": {"x-claude-code-session-id": "0b8f", "x-app": "cli"},
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"},
            {"type": "text", "text": words(f"{ANSWER}{call('Bash', command='ls <&>')}"), "cache_control": MARK}]}]}
    with scripted_clients.anthropic.beta.messages.stream(**asked) as stream:
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    use: Any = message.content[2]
    assert (use.name, use.input, message.stop_reason) == ("Bash", {"command": "ls <&>"}, "tool_use")

    asked["messages"] += [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": use.id, "content": "a.py", "is_error": False},
            {"type": "text", "text": words("Done."), "cache_control": MARK}]}]
    assert scripted_clients.anthropic.beta.messages.count_tokens(
        **{name: value for name, value in asked.items() if name not in ("max_tokens", "metadata")}).input_tokens > 50
    last: Any = scripted_clients.anthropic.beta.messages.create(**asked | {"max_tokens": 1000})
    assert [block.type for block in last.content] == ["thinking", "text"]
    assert (last.content[1].text, last.stop_reason) == ("Done.", "end_turn")


def test_codex_is_served(scripted_clients: Clients) -> None:
    asked: Any = {
        "model": MODEL, "instructions": "You are an agent.", "store": False, "prompt_cache_key": "0b8f",
        "tool_choice": "auto", "parallel_tool_calls": False, "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"}, "extra_headers": {"session-id": "0b8f"},
        "tools": [{"type": "function", "name": "shell", "description": "Runs.", "strict": False,
                   "parameters": COMMAND}],
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": words(f"{ANSWER}{call('shell', command='ls <&>')}")}]}]}
    with scripted_clients.openai.responses.stream(**asked) as stream:
        response = stream.get_final_response()
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    made: Any = response.output[2]
    assert (made.name, made.arguments) == ("shell", '{"command":"ls <&>"}')

    asked["input"] += [*(item.to_dict() for item in response.output),
                       {"type": "function_call_output", "call_id": made.call_id, "output": "a.py"},
                       {"type": "message", "role": "user", "content": [
                           {"type": "input_text", "text": words("Done.")}]}]
    assert scripted_clients.openai.responses.create(**asked).output_text == "Done."


def test_an_agent_on_chat_is_served(scripted_clients: Clients) -> None:
    asked: Any = {
        "model": MODEL, "reasoning_effort": "high", "parallel_tool_calls": True, "max_completion_tokens": 2000,
        "user": "u", "safety_identifier": "u", "prompt_cache_key": "0b8f", "store": False, "metadata": {"a": "b"},
        "tools": [{"type": "function", "function": {
            "name": "shell", "description": "Runs.", "parameters": COMMAND, "strict": True}}],
        "extra_headers": {"X-Session-ID": "0b8f"}, "extra_body": {"usage": {"include": True}},
        "messages": [{"role": "system", "content": "You are an agent."},
                     {"role": "user", "content": words(f"{ANSWER}{call('shell', command='ls')}")}]}
    message = scripted_clients.openai.chat.completions.create(**asked).choices[0].message
    [made] = message.tool_calls or []
    asked["messages"] += [message.to_dict(), {"role": "tool", "tool_call_id": made.id, "content": "a.py"},
                          {"role": "user", "content": words("Done.")}]
    with scripted_clients.openai.chat.completions.stream(**asked) as stream:
        assert stream.get_final_completion().choices[0].message.content == "Done."
