"""A directory that the account of a server may pass through; pytest's own are closed to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import throwaway


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """An empty directory outside pytest's closed ones."""
    with throwaway.directory() as path:
        yield path
