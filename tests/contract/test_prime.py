"""The `prime` command line, unmodified: nothing but its own environment variables points it here.

Its commands about wallets, teams and people ask a platform's own routes and are no part of what an edge serves.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.environments.install import environment
from tests.contract.guests import MODEL, Guest
from tests.ran import Ran

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]
Prime = Callable[..., Ran]


@pytest.fixture(scope="module")
def program() -> Path:
    return environment("prime") / "prime"


@pytest.fixture
def prime(program: Path, guest: Guest, tmp_path: Path) -> Prime:
    """Runs `prime --plain` as its user does; keyword arguments are more variables."""

    def run(*arguments: str, **variables: str) -> Ran:
        done = subprocess.run(
            [program, "--plain", *arguments], capture_output=True, text=True, timeout=60, check=False,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PRIME_API_KEY": guest.key,
                 "PRIME_INFERENCE_URL": f"{guest.url}/api/v1", "PRIME_API_BASE_URL": guest.url, **variables})
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


def answer_in(out: str) -> str:
    """What was printed, without the line that asks for patience."""
    return "".join(line for line in out.splitlines(keepends=True) if not line.startswith("Waiting for "))


def test_models_are_listed_with_their_prices(prime: Prime) -> None:
    listed = prime("inference", "models")
    assert listed.code == 0, listed.err
    [row] = [line for line in listed.out.splitlines() if MODEL in line]
    assert [word for word in row.split() if word.startswith("$")] == ["$0.6", "$2.2", "$0.11"]
    [model] = prime("inference", "models", "-o", "json").json["data"]
    assert (model["id"], model["pricing"]["unit_prices"]["prompt"]) == (MODEL, "0.0000006")


def test_models_are_listed_without_a_key(prime: Prime) -> None:
    assert MODEL in prime("inference", "models", PRIME_API_KEY="").out


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_answered_and_recorded_once(prime: Prime, guest: Guest, stream: bool) -> None:
    with guest.one_record() as recorded:
        said = prime("inference", "chat", MODEL, "hello there", "--max-tokens", "8", *(["--stream"] if stream else []),
                     PRIME_TEAM_ID=guest.team_id)
    assert said.code == 0, said.err
    assert len(answer_in(said.out).split()) == 8
    [record] = recorded
    assert (record["completion_tokens"], record["streamed"]) == (8, stream)


def test_the_whole_answer_has_its_cost(prime: Prime, guest: Guest) -> None:
    with guest.one_record() as recorded:
        said = prime("inference", "chat", MODEL, "hello there", "--max-tokens", "8", "-o", "json")
    [record] = recorded
    assert json.loads(answer_in(said.out))["usage"]["cost"] == float(record["cost_usd"])


def test_a_foreign_team_is_named_as_the_fault(prime: Prime) -> None:
    refused = prime("inference", "chat", MODEL, "hello", PRIME_TEAM_ID="team_other")
    assert refused.code == 1
    assert "team_mismatch" in refused.out + refused.err


def test_a_model_that_there_is_not_is_named_as_the_fault(prime: Prime) -> None:
    refused = prime("inference", "chat", "sim/none", "hello")
    assert refused.code == 1
    assert "model_not_found" in refused.out + refused.err
