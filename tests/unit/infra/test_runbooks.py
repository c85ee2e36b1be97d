"""The parts that run runbooks, and that every page is whole: what it is for, what to do, when to stop."""

import re
from pathlib import Path

import pytest
import yaml

from tests.e2e.runbooks import RUNBOOKS, Typed, commands, filled, missing, pages
from tests.unit.infra.prometheus.promtool import rule_files

PAGE = """# X

```console
$ meridian drain DATACENTER --reason "test" # exit 3
refused…last datacenter
$ meridian status
```

```sh
$ not run
```

```console
$ true
```
"""
LINK = re.compile(r"\[[^\]]+\]\(([a-z-]+)\.md\)")


def alerts_by_page() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in rule_files():
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    found.setdefault(Path(rule["annotations"]["runbook_url"]).stem, set()).add(rule["alert"])
    return found


def test_commands_are_read_with_what_they_must_say_and_their_exit_code() -> None:
    assert list(commands(PAGE)) == [
        Typed('meridian drain DATACENTER --reason "test"', 3, ["refused…last datacenter"]),
        Typed("meridian status"), Typed("true")]


def test_known_words_are_filled_in_and_others_stay() -> None:
    assert filled("meridian drain DATACENTER --ttl TTL", {"DATACENTER": "us-east-1"}) == (
        "meridian drain us-east-1 --ttl TTL")


@pytest.mark.parametrize(("wanted", "fault"), [
    (["one two", "three"], ""), (["one…three"], ""), (["three", "one"], "one"), (["one  two"], ""), (["four"], "four")])
def test_pieces_must_come_in_their_order(wanted: list[str], fault: str) -> None:
    assert missing("one\n  two three", wanted) == fault


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.stem))
def test_a_page_says_when_what_and_when_to_stop(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("# ")
    heads = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert heads[0] == "When"
    assert "When to stop" in heads
    assert any(True for _ in commands(text)), "no command"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.stem))
def test_a_page_names_every_alert_that_leads_to_it(page: Path) -> None:
    text = page.read_text()
    assert {alert for alert in alerts_by_page().get(page.stem, set()) if f"`{alert}`" not in text} == set()


def test_the_list_has_every_page_once_and_alerts_lead_only_to_pages() -> None:
    listed = LINK.findall((RUNBOOKS / "README.md").read_text())
    names = {page.stem for page in pages()}
    assert sorted(listed) == sorted(names)
    assert set(alerts_by_page()) <= names
