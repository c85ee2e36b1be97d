"""The generated pages are what the code says today, and the generator says what it should."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from control_plane.cli.app import COMMANDS
from docs import generate
from tests.lint.sources import python_sources


class Example(BaseSettings):
    """Settings of every kind."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_")

    port: int = Field(default=80, ge=0, le=65_535, description="Where | to listen.")
    urls: list[str] = Field(description="Whom to ask.")
    token: SecretStr = Field(default=SecretStr(""), description="A secret.")
    folder: Path | None = Field(default=None, description="Where to write.")


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| `")]


def test_the_generated_pages_are_fresh() -> None:
    assert generate.main(["--check"]) == 0, "run ./dev docs"


def test_a_stale_page_is_found_named_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "docs/cli.md is stale: run ./dev docs" in capsys.readouterr().err
    assert not (tmp_path / "cli.md").exists()
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_every_command_has_its_place_on_the_page() -> None:
    page = generate.cli_page()
    assert [name for name in COMMANDS if f"### `meridian {name}" not in page] == []


def test_every_settings_module_is_on_the_page() -> None:
    listed = {module for _, _, module in generate.SETTINGS}
    found = {source.path.removesuffix(".py").replace("/", ".") for source in python_sources()
             if source.is_product and source.path.endswith("/settings.py")}
    assert found == listed


def test_every_setting_says_what_it_is_for() -> None:
    assert [row for row in rows(generate.configuration_page()) if row.endswith("|  |")] == []


def test_a_setting_has_its_variable_type_default_and_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "SETTINGS", [("Example", "nobody", __name__)])
    monkeypatch.setattr(f"{__name__}.Settings", Example, raising=False)
    assert rows(generate.configuration_page()) == [
        "| `MERIDIAN_PORT` | whole number, from 0 to 65535 | `80` | Where \\| to listen. |",
        "| `MERIDIAN_URLS` | list of text | **required** | Whom to ask. |",
        "| `MERIDIAN_TOKEN` | secret | none | A secret. |",
        "| `MERIDIAN_FOLDER` | path | none | Where to write. |",
    ]


def test_an_option_shows_its_choices_and_its_default() -> None:
    page = generate.cli_page()
    assert "| `--engine` `sim` | What runs the models. Default: `sim`. |" in page
    assert "| `--stream`, `--no-stream` | " in page
    assert "| `--datacenters` `N` | How many datacenters. Default: `2`. |" in page


def test_no_command_and_no_argument_is_called_none() -> None:
    page = (generate.DOCS / "cli.md").read_text()
    assert not [line for line in page.splitlines() if "None`" in line and line.startswith(("###", "| `"))]
