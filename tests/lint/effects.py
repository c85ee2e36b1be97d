"""Rules on where effects may happen: the clock, randomness, SQL, commits, the network, and the moment of import."""

import ast
import re
from collections.abc import Iterator

from tests.lint.sources import Fault, Source

CLOCK_AND_CHANCE = ("control_plane/contracts/clock.py", "control_plane/contracts/ids.py")
CLOCKS = {
    f"time.{name}{suffix}" for name in ("time", "monotonic", "perf_counter", "process_time") for suffix in ("", "_ns")
} | {f"datetime.{kind}.{name}" for kind in ("datetime", "date") for name in ("now", "utcnow", "today")}
CHANCE = {"os.urandom", "os.getrandom"} | {f"uuid.uuid{n}" for n in (1, 4, 6, 7)}
HARMLESS = {"secrets.compare_digest"}

SQL_FILES = re.compile(r"^control_plane/(.*/)?(repository|queries|models|db)\.py$|^migrations/")
# What makes a statement or a condition; `func` alone, as in a database's clock for a column, is neither.
SQL_NAMES = {"select", "insert", "update", "delete", "text", "union", "union_all", "exists", "literal_column", "and_",
             "or_", "bindparam", "tuple_", "values", "case"}
SQL_TEXT = re.compile(
    r"\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|CREATE\s+TABLE\s|ALTER\s+TABLE\s|NOTIFY\s"
    r"|LISTEN\s)")
RUNS_SQL = {"execute", "executemany", "fetch", "fetchrow", "fetchval", "exec_driver_sql", "scalar", "scalars"}
COMMIT_FILES = ("control_plane/db.py", "migrations/__init__.py", "migrations/env.py")

SESSION_MAKERS = {"begin", "read", "session"}
NETWORK_OWNERS = re.compile(r"client|http|redis|valkey|stripe|celery|requests", re.IGNORECASE)
CLIENT_MAKERS = ("httpx.Client", "httpx.AsyncClient", "sqlalchemy.create_engine",
                 "sqlalchemy.ext.asyncio.create_async_engine", "redis.asyncio.Redis", "redis.Redis",
                 "redis.asyncio.from_url", "redis.from_url")


def injected_clock(source: Source) -> Iterator[Fault]:
    """Only `clock.py` reads a clock and only `ids.py` draws chance."""
    if not source.is_product or source.path in CLOCK_AND_CHANCE:
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = source.dotted(node)
        drawn = name in CHANCE or (name.split(".")[0] in {"random", "secrets"} and "." in name)
        if (name in CLOCKS or drawn) and name not in HARMLESS and _is_imported(source, node):
            yield Fault(source.path, node.lineno, f"{name} belongs to contracts/clock.py or contracts/ids.py")


def sql_in_its_place(source: Source) -> Iterator[Fault]:
    """SQL is written in repository.py, queries.py, models.py, db.py and migrations, and nowhere else."""
    if source.package != "control_plane" or SQL_FILES.match(source.path):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sqlalchemy":
            for alias in node.names:
                if alias.name in SQL_NAMES:
                    yield Fault(source.path, node.lineno, f"{alias.name} belongs to a repository")
        elif isinstance(node, ast.Attribute) and source.dotted(node).split(".")[0] == "sqlalchemy":
            if node.attr in SQL_NAMES:
                yield Fault(source.path, node.lineno, f"{node.attr} belongs to a repository")
        elif isinstance(node, ast.expr) and (_is_sql_text(node) or _runs_text(node)):
            yield Fault(source.path, node.lineno, "SQL text belongs to a repository")


def commit_in_its_place(source: Source) -> Iterator[Fault]:
    """Only db.py commits: a request or a task is one transaction."""
    if source.package not in ("control_plane", "migrations") or source.path in COMMIT_FILES:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit":
            yield Fault(source.path, node.lineno, "commit() belongs to db.py")


def no_network_in_a_session(source: Source) -> Iterator[Fault]:
    """Nothing waits for the network, or sleeps, while a database session is open."""
    if source.package != "control_plane":
        return
    for block in ast.walk(source.tree):
        if not (isinstance(block, ast.AsyncWith) and any(_opens_session(item) for item in block.items)):
            continue
        for node in (inner for statement in block.body for inner in ast.walk(statement)):
            if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
                called = source.dotted(node.value.func)
                owner = called.rpartition(".")[0].rpartition(".")[2]
                if called == "asyncio.sleep" or NETWORK_OWNERS.search(owner):
                    yield Fault(source.path, node.lineno, f"{called} waits inside a database session")


def no_clients_at_import(source: Source) -> Iterator[Fault]:
    """Importing a module opens nothing."""
    if not source.is_product:
        return
    for statement in source.tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and source.dotted(node.func) in CLIENT_MAKERS:
                yield Fault(source.path, node.lineno, f"{source.dotted(node.func)} is made when the module is imported")


def _is_imported(source: Source, node: ast.Attribute | ast.Name) -> bool:
    """Whether the name comes from an import, rather than being a variable that is called the same."""
    base: ast.expr = node
    while isinstance(base, ast.Attribute):
        base = base.value
    return isinstance(base, ast.Name) and base.id in source.imported


def _is_sql_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(SQL_TEXT.match(node.value))


def _runs_text(node: ast.expr) -> bool:
    """Whether this executes a string, in whatever case it is written."""
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNS_SQL
            and bool(node.args) and isinstance(node.args[0], ast.Constant | ast.JoinedStr))


def _opens_session(item: ast.withitem) -> bool:
    call = item.context_expr
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SESSION_MAKERS):
        return False
    owner = call.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return name.strip("_") in ("db", "database")
