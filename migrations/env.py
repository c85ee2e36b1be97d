"""Alembic's environment: all slices' models, on the connection that `migrations` hands over."""

import importlib
import importlib.util
import pkgutil
import re
from typing import Any

from alembic import context

import control_plane
from control_plane.db import Base

PARTITION = re.compile(r"_(p\d{8}|default)$")


def include_name(name: str | None, kind: str, _parents: Any) -> bool:
    """Partitions are made by code, not by migrations: leave them alone."""
    return not (kind == "table" and name is not None and PARTITION.search(name))


def load_models() -> None:
    """Imports the models of every slice, so that `Base.metadata` is whole."""
    for module in pkgutil.iter_modules(control_plane.__path__):
        if module.ispkg and importlib.util.find_spec(f"control_plane.{module.name}.models"):
            importlib.import_module(f"control_plane.{module.name}.models")


def run() -> None:
    load_models()
    context.configure(
        connection=context.config.attributes["connection"], target_metadata=Base.metadata, include_name=include_name,
        transaction_per_migration=True, compare_server_default=False)
    with context.begin_transaction():
        context.run_migrations()


run()
