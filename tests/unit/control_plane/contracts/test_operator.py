"""What operators may write, and later read in a terminal."""

import pytest
from pydantic import ValidationError

from control_plane.contracts.operations import OperationKind, OperationRequest
from control_plane.contracts.operator import KeyRequest, OperatorScope, OperatorTokenRequest, TeamRequest

CONTROL = ["a\nb", "\x1b]0;title\x07", "a\rb", "\x7f", "\x9b2J", "\0"]


@pytest.mark.parametrize("text", CONTROL)
def test_no_text_that_a_terminal_shows_has_control_characters(text: str) -> None:
    with pytest.raises(ValidationError):
        OperatorTokenRequest(name=text, scopes=[OperatorScope.READ])
    with pytest.raises(ValidationError):
        TeamRequest(name=text, slug="team")
    with pytest.raises(ValidationError):
        KeyRequest(name=text)
    with pytest.raises(ValidationError):
        OperationRequest(kind=OperationKind.DRAIN, datacenter="us-east-1", reason=text)


@pytest.mark.parametrize("text", ["Größe 4", "a b-c_d", "研究", "🚀"])
def test_words_of_any_language_are_names(text: str) -> None:
    assert TeamRequest(name=text, slug="team").name == text
