"""The options of an edge by itself: what is missing or wrong is said before anything starts."""

import pytest

from tests.unit.control_plane.cli.conftest import Meridian

UPSTREAM = ("--upstream", "http://127.0.0.1:1/v1")


def test_a_key_without_a_server_is_a_usage_error(nowhere: Meridian) -> None:
    ran = nowhere("edge", "--key", "k")
    assert ran.code == 2
    assert "--upstream" in ran.err


def test_a_server_without_a_key_is_a_usage_error(nowhere: Meridian, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MERIDIAN_STANDALONE_KEY", raising=False)
    ran = nowhere("edge", *UPSTREAM)
    assert ran.code == 2
    assert "--key" in ran.err


@pytest.mark.parametrize("price", ["-1", "NaN", "inf", "cheap"])
def test_a_price_is_a_number_of_dollars(nowhere: Meridian, price: str) -> None:
    ran = nowhere("edge", *UPSTREAM, "--key", "k", "--output-usd", price)
    assert ran.code == 2
    assert price in ran.err


def test_an_address_that_is_no_server_ends_it_before_anything_is_written(nowhere: Meridian) -> None:
    with pytest.raises(SystemExit, match="no URL of a server"):
        nowhere("edge", "--upstream", "127.0.0.1:8000", "--key", "k")
    assert not list(nowhere.state.glob("edge-alone/outbox"))
