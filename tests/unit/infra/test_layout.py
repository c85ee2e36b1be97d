"""The state directory: secrets, lock, and every reason to refuse it."""

import os
import stat
from pathlib import Path

import pytest

from control_plane.contracts.signing import SigningKey
from infra.local import layout
from infra.local.errors import StackRefused
from infra.local.layout import Layout, Secrets, StateMark, open_layout


def opened(state: Path) -> Layout:
    found, lock = open_layout(state)
    lock.close()
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_state_directory_gets_different_secrets_each_time(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "a").read_secrets(), opened(tmp_path / "b").read_secrets()
    assert first.postgres_role != second.postgres_role
    assert len({first.postgres_role, first.postgres_superuser, first.valkey}) == 3


def test_secrets_and_signing_key_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    found = opened(tmp_path / "state")
    assert mode(found.state / "secrets.json") == 0o600
    assert mode(found.signing_key) == 0o600


def test_others_may_pass_through_the_state_directory_but_not_look(tmp_path: Path) -> None:
    found = opened(tmp_path / "state")
    assert mode(found.state) == 0o711
    assert mode(found.postgres_data.parent) == 0o711


def test_a_second_start_finds_secrets_and_key_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    secrets, key = first.read_secrets(), SigningKey.load_or_create(first.signing_key).public.text
    again = opened(tmp_path)
    assert again.read_secrets() == secrets
    assert SigningKey.load_or_create(again.signing_key).public.text == key


def test_what_was_provisioned_is_kept(tmp_path: Path) -> None:
    found = opened(tmp_path)
    changed = found.read_secrets().model_copy(update={"api_key": "sk", "api_key_id": "key_1"})
    found.write_secrets(changed)
    assert opened(tmp_path).read_secrets() == changed


def test_a_second_stack_in_the_same_directory_is_refused_with_the_process_that_runs(tmp_path: Path) -> None:
    _, lock = open_layout(tmp_path)
    with lock, pytest.raises(StackRefused, match=f"already runs.*process {os.getpid()}"):
        open_layout(tmp_path)


def test_the_lock_ends_with_its_file(tmp_path: Path) -> None:
    _, lock = open_layout(tmp_path)
    lock.close()
    opened(tmp_path)


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StackRefused, match="holds something else"):
        open_layout(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_state_of_another_release_is_refused_with_its_name(tmp_path: Path) -> None:
    mark = StateMark(format=99, release="9.9.9", uid=os.geteuid())
    (tmp_path / "state.json").write_text(mark.model_dump_json())
    with pytest.raises(StackRefused, match=r"made by Meridian 9\.9\.9"):
        open_layout(tmp_path)


def test_the_state_of_another_account_is_refused(tmp_path: Path) -> None:
    mark = StateMark(format=layout.FORMAT, release="0.1.0", uid=os.geteuid() + 1)
    (tmp_path / "state.json").write_text(mark.model_dump_json())
    with pytest.raises(StackRefused, match=f"uid {os.geteuid() + 1}"):
        open_layout(tmp_path)


@pytest.mark.parametrize("name", ["state.json", "secrets.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    opened(tmp_path)
    (tmp_path / name).write_text("{")
    with pytest.raises(StackRefused, match=f"{name} is .*damaged"):
        open_layout(tmp_path)


def test_a_start_killed_before_the_mark_was_written_begins_anew_only_when_nothing_is_there(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1\n")
    assert isinstance(opened(tmp_path).read_secrets(), Secrets)


def test_a_path_longer_than_postgres_can_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackRefused, match="longer than 900 bytes"):
        open_layout(tmp_path / "/".join(["long" * 20] * 12))


def test_a_name_longer_than_the_file_system_allows_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StackRefused, match="File name too long"):
        open_layout(tmp_path / ("x" * 300))


def test_a_file_where_the_directory_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StackRefused, match="cannot be used"):
        open_layout(tmp_path / "state")


def test_a_nearly_full_disk_is_refused_with_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(StackRefused, match=r"only \d+ MiB are free"):
        open_layout(tmp_path)
