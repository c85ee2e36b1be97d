"""The rules on texts: each shown to fail, then applied to every tracked file."""

import pytest

from tests.lint.sources import text_files
from tests.lint.texts import living_links, locks_with_hashes, locks_without_addresses, no_machine


@pytest.mark.parametrize("line", [
    "see /wo" "rk/main/dev", "cache in /ro" "ot/.cache", "in /ho" "me/ada/meridian", "open('/t" "mp/x')",
    "pip install --ind" "ex-url http://x", "--find-li" "nks .", "from https://pyp" "i.org/simple",
    "https://files.pythonho" "sted.org/x", "artifact" "ory.example", "http://10.1" ".2.3:80", "192.168" ".0.1"])
def test_a_trace_of_a_machine_is_found(line: str) -> None:
    assert list(no_machine("README.md", line))


@pytest.mark.parametrize("line", [
    "http://127.0.0.1:8700/v1", "infra/local/ro" "ot.py", "docs/wo" "rk/x", "version 10.1.2", "the index says",
    "/t" "mp", "Annotated[Path, '/usr/bin']"])
def test_what_is_no_trace_is_let_be(line: str) -> None:
    assert list(no_machine("README.md", line)) == []


def test_a_test_may_show_that_a_private_address_stays_private() -> None:
    assert list(no_machine("tests/unit/test_x.py", "http://10.1.2.3")) == []


def test_an_address_in_a_lock_file_is_found() -> None:
    assert list(locks_without_addresses("engine/requirements.lock", "x @ https://host/x.whl"))
    assert list(locks_without_addresses("README.md", "https://example.org")) == []


@pytest.mark.parametrize("entry", ["x>=1 \\\n    --hash=sha256:aa\n", "x==1\n", "x==1 \\\n    --hash=md5:aa\n"])
def test_a_requirement_without_pin_or_hash_is_found(entry: str) -> None:
    assert list(locks_with_hashes("requirements.lock", "a==1 \\\n    --hash=sha256:bb\n" + entry))


def test_a_pinned_and_hashed_lock_is_right() -> None:
    assert list(locks_with_hashes("requirements.lock", "a==1 \\\n    --hash=sha256:bb\nb==2 --hash=sha256:cc\n")) == []


@pytest.mark.parametrize("line", [
    "see [it](gone.md)", "see [it](docs/gone.md#part)", "![picture](docs/gone.svg 'A picture')", "see [it](<gone.md>)",
    "[it]: gone.md", '<img src="docs/gone.svg">', "see [it](../README.md)", "see [code](README.m)",
    "in @@" "GAP@@ seconds", "```\n@@" "GAP@@\n```", "```\n[a](gone.md)\n```\n[a](gone.md)"])
def test_a_dead_link_and_a_held_place_are_found(line: str) -> None:
    [fault] = living_links("README.md", line)
    assert fault.path == "README.md"


@pytest.mark.parametrize("line", [
    "see [it](docs/architecture.md#part), [it](docs), [it](/dev)", "[it](https://example.org/x), [it](#part)",
    "<a href='mailto:x@example.org'>", "`[a](gone.md)`", "```\n[a](gone.md)\n```", "a @@ b @@ c"])
def test_a_living_link_is_let_be(line: str) -> None:
    assert list(living_links("README.md", line)) == []


def test_a_link_is_read_from_its_own_page() -> None:
    assert list(living_links("docs/operations/drain.md", "[up](../architecture.md) [by](restore.md)")) == []
    assert list(living_links("docs/operations/drain.md", "[up](architecture.md)"))
    assert list(living_links("tests/x.py", "[up](gone.md)")) == []


@pytest.mark.parametrize("rule", [no_machine, living_links, locks_without_addresses, locks_with_hashes],
                         ids=lambda rule: rule.__name__)
def test_the_repository_keeps_the_rule(rule: object) -> None:
    assert callable(rule)
    faults = [str(fault) for path, text in text_files() for fault in rule(path, text)]
    assert faults == [], "\n".join(["", rule.__doc__ or "", *faults])
