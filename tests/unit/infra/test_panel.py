"""What the panel says, and that its lines can be pasted."""

import ast
import json
import subprocess

from control_plane.contracts.ids import new_secret
from infra.local.panel import PanelFacts, curl, render, snippet
from infra.local.shape import MODEL, Shape

KEY = new_secret("sk_meridian_local")
EDGE = "http://127.0.0.1:8700/v1"
SHAPE = Shape(8700, datacenter_count=2, edge_count=2, replica_count=1, engine="sim")


def panel() -> str:
    return render(PanelFacts(
        shape=SHAPE, api_key=KEY, command="./dev run", python=".venv/bin/python", local_file=".meridian/local.json",
        started_in_s=12.34,
    ))  # fmt: skip


def test_no_line_is_cut_on_a_terminal_of_80_columns() -> None:
    assert max(map(len, panel().splitlines())) <= 80


def test_it_names_edges_model_key_and_dashboard() -> None:
    text = panel()
    for fact in (EDGE, "http://127.0.0.1:8701/v1", MODEL, KEY, "http://127.0.0.1:8710/api/v1/teams/local/usage"):
        assert fact in text


def test_it_says_that_the_words_mean_nothing_and_what_is_not_part_of_the_release() -> None:
    assert "words mean nothing" in panel()
    assert "--engine vllm" in panel()


def test_it_says_where_anthropics_client_is_to_go() -> None:
    assert "\nEdge (Anthropic)    http://127.0.0.1:8700, with the same key\n" in panel()


def test_it_says_what_to_try_next() -> None:
    text = panel()
    assert "\n./dev run drain us-east-1 --reason test --wait" in text
    assert "\n./dev run status\n" in text
    assert "\n./dev run usage " in text


def test_the_curl_command_is_in_the_panel_as_it_is_run() -> None:
    assert f"\n{curl(EDGE, KEY)}\n" in panel()


def test_the_curl_command_is_one_command_of_the_shell_with_a_json_body() -> None:
    script = "curl() { printf '%s\\0' \"$@\"; }\n" + curl(EDGE, KEY)
    words = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")
    assert words[:2] == ["-N", f"{EDGE}/chat/completions"]
    assert words[words.index("--oauth2-bearer") + 1] == KEY
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == MODEL
    assert body["stream"] is True


def test_the_python_snippet_is_python_without_indentation_before_it() -> None:
    code = snippet(EDGE, KEY)
    ast.parse(code)
    assert f"\n{code}\n" in panel()
