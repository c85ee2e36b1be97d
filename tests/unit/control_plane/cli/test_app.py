"""How the command line is put together: help, options on either side, errors as lines or as JSON."""

import json

import pytest

from control_plane.cli.app import COMMANDS, wants_json
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer


def test_without_arguments_it_shows_help_and_succeeds(nowhere: Meridian) -> None:
    ran = nowhere()
    assert ran.code == 0
    assert "Usage: meridian" in ran.out


def test_help_names_every_command(nowhere: Meridian) -> None:
    out = nowhere("--help").out
    assert [name for name in COMMANDS if f"│ {name} " not in out] == []


def test_help_fits_eighty_columns(nowhere: Meridian) -> None:
    assert max(len(line) for line in nowhere("--help").out.splitlines()) <= 80


def test_help_says_what_the_exit_codes_mean(nowhere: Meridian) -> None:
    assert "3 refused by a safety rule" in " ".join(nowhere("--help").out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_offers_json(nowhere: Meridian, name: str) -> None:
    out = nowhere(name, "--help").out
    leaves = [line.split()[1] for line in out.partition("Commands")[2].splitlines() if line.startswith("│ ")
              and not line.startswith("│  ")]
    pages = [nowhere(name, leaf, "--help").out for leaf in leaves] or [out]
    assert all("<table|plain|json>" in page for page in pages)


def test_an_unknown_command_is_a_usage_error_with_a_guess(nowhere: Meridian) -> None:
    ran = nowhere("statsu")
    assert ran.code == 2
    assert ran.err == "error: No such command 'statsu'. Did you mean 'status'?\n"


def test_an_unknown_option_is_a_usage_error(nowhere: Meridian) -> None:
    ran = nowhere("status", "--colour")
    assert ran.code == 2
    assert "No such option: --colour" in ran.err


def test_a_group_without_a_command_shows_its_help(nowhere: Meridian) -> None:
    ran = nowhere("operations")
    assert ran.code == 2
    assert "cancel" in ran.out
    assert ran.err == ""


def test_output_may_stand_before_the_command(meridian: Meridian) -> None:
    assert meridian("-o", "json", "status").json["snapshot_version"] == 1


def test_output_may_stand_after_the_command(meridian: Meridian) -> None:
    assert meridian("status", "-o", "json").json["snapshot_version"] == 1


def test_the_nearer_output_option_wins(meridian: Meridian) -> None:
    assert meridian("-o", "plain", "status", "-o", "json").json["snapshot_version"] == 1


@pytest.mark.parametrize("before", [True, False])
def test_state_may_stand_on_either_side(nowhere: Meridian, api: OperatorServer, before: bool,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere.point_at([api.url])
    monkeypatch.setenv("MERIDIAN_STATE", "/nonexistent")
    state = ["--state", str(nowhere.state)]
    ran = nowhere(*(state if before else []), "status", *([] if before else state))
    assert ran.code == 0


def test_a_missing_stack_is_one_line_that_says_what_to_do(nowhere: Meridian) -> None:
    ran = nowhere("status")
    assert ran.code == 1
    assert ran.err == (f"error: no stack found in {nowhere.state}: start one with ./dev up, or pass --state DIR\n")
    assert ran.out == ""


def test_in_json_an_error_is_json_on_standard_error_alone(nowhere: Meridian) -> None:
    ran = nowhere("status", "-o", "json")
    assert ran.out == ""
    assert json.loads(ran.err)["code"] == "no_stack"
    assert json.loads(ran.err)["exit_code"] == 1


def test_in_json_a_usage_error_is_json_too(nowhere: Meridian) -> None:
    ran = nowhere("drain", "us-east-1", "--output=json")
    assert ran.code == 2
    assert json.loads(ran.err) == {"code": "usage", "exit_code": 2, "message": "Missing option '--reason' / '-r'."}


@pytest.mark.parametrize(("arguments", "wanted"), [
    (["-o", "json"], True), (["-ojson"], True), (["-o=json"], True), (["--output", "json"], True),
    (["--output=json"], True), (["-o", "plain"], False), (["chat", "json"], False), ([], False),
])
def test_json_is_told_from_the_raw_arguments(arguments: list[str], wanted: bool) -> None:
    assert wants_json(arguments) is wanted
