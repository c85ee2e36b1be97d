"""The steps of operations in words."""

import pytest

from control_plane.cli.steps import WORDS, in_words
from control_plane.operations.steps import StepName


@pytest.mark.parametrize("step", StepName)
def test_every_step_of_the_control_plane_has_words(step: StepName) -> None:
    assert in_words(step) == WORDS[step]


def test_an_unknown_step_is_shown_by_its_name() -> None:
    assert in_words("await_quorum") == "await quorum"
