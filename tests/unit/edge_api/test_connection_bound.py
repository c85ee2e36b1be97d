"""How many clients an edge takes, by the files that it may open."""

import resource

import pytest

from edge_api.serving import OWN_FILES, max_connections


@pytest.mark.parametrize("open_files", [256, 1_024, 20_000, 1_048_576])
def test_every_client_may_have_its_upstream_connection_and_files_are_left(open_files: int) -> None:
    clients = max_connections(open_files)
    assert clients > 0
    assert 2 * clients + min(OWN_FILES, open_files // 2) <= open_files


def test_a_process_without_a_bound_has_one_for_clients() -> None:
    assert 0 < max_connections(resource.RLIM_INFINITY) < 10**7
