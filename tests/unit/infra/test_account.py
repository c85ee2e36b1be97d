"""As whom Postgres runs and where its files are placed."""

import os
from pathlib import Path

import pytest

from infra.local import account
from infra.local.account import Account, can_reach, place, unprivileged_account

STRANGER = Account("stranger", 54_321, 54_321)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root lends out another account")
plain_only = pytest.mark.skipif(os.geteuid() == 0, reason="root never runs Postgres as itself")


def make_open(path: Path) -> Path:
    path.mkdir(parents=True)
    path.chmod(0o755)
    return path


def test_an_open_way_can_be_walked(open_directory: Path) -> None:
    assert can_reach(make_open(open_directory / "a" / "b"), STRANGER)


def test_one_closed_directory_on_the_way_is_enough_to_stop(open_directory: Path) -> None:
    closed = make_open(open_directory / "a")
    inner = make_open(closed / "b")
    closed.chmod(0o700)
    assert not can_reach(inner, STRANGER)


def test_passing_through_needs_no_right_to_look(open_directory: Path) -> None:
    passable = make_open(open_directory / "a")
    inner = make_open(passable / "b")
    passable.chmod(0o711)
    assert can_reach(inner, STRANGER)


def test_the_owner_is_judged_by_the_owners_rights(open_directory: Path) -> None:
    closed = make_open(open_directory / "a")
    closed.chmod(0o700)
    assert can_reach(closed, Account("owner", os.geteuid(), os.getegid()))


def test_there_is_an_account_without_rights_on_every_system() -> None:
    found = unprivileged_account()
    assert found is not None
    assert found.uid != 0


@plain_only
def test_a_plain_user_runs_postgres_as_itself(tmp_path: Path) -> None:
    placement = place(tmp_path / "bin", tmp_path / "data")
    assert (placement.data_dir, placement.account, placement.rights) == (tmp_path / "data", None, ())


def installation(directory: Path) -> Path:
    programs = make_open(directory / "pginstall" / "bin")
    (programs / "postgres").write_text("#!/bin/sh\n")
    (programs / "postgres").chmod(0o755)
    return programs


@root_only
def test_root_lends_an_account_that_can_reach_everything(open_directory: Path) -> None:
    placement = place(installation(open_directory), open_directory / "data")
    assert placement.data_dir == open_directory / "data"
    assert placement.account == unprivileged_account()


@root_only
def test_what_the_account_cannot_reach_is_placed_outside(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "OUTSIDE", open_directory / "outside")
    closed = make_open(open_directory / "root")
    programs = installation(closed)
    closed.chmod(0o700)
    placement = place(programs, closed / "data")
    lent = placement.account
    assert lent is not None
    assert can_reach(placement.bin_dir / "postgres", lent)
    assert can_reach(placement.data_dir.parent, lent)
    assert place(programs, closed / "data") == placement


@root_only
def test_removed_state_is_not_found_again_outside(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "OUTSIDE", open_directory / "outside")
    closed = make_open(open_directory / "root")
    programs = installation(closed)
    closed.chmod(0o700)
    first = place(programs, closed / "data").data_dir
    first.mkdir()
    (closed / "data").unlink()
    assert not place(programs, closed / "data").data_dir.exists()


@root_only
def test_without_account_or_place_root_enters_a_user_namespace(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "ACCOUNTS", ("nobody-of-this-name",))
    assert place(installation(open_directory), open_directory / "data").rights == ("--user-namespace",)
