"""Rules on the shape of code: sizes, names, docstrings, exceptions, logs."""

import ast
import re
from collections.abc import Iterator

from tests.lint.sources import Fault, Source

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
EVENT_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LOGGERS = {"log", "_log", "logger", "_logger"}
UNITLESS = {"timeout", "deadline", "delay", "interval", "duration", "ttl", "age", "latency", "wait", "grace", "period"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[Function]:
    """Every function and method."""
    yield from (node for node in ast.walk(source.tree) if isinstance(node, Function))


def function_lines(function: Function) -> int:
    """How long a function is, signature and docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def short_files(source: Source) -> Iterator[Fault]:
    """A file has at most 500 lines."""
    if len(source.lines) > MAX_FILE_LINES:
        yield Fault(source.path, MAX_FILE_LINES, f"{len(source.lines)} lines; at most {MAX_FILE_LINES}")


def short_functions(source: Source) -> Iterator[Fault]:
    """A function has at most 80 lines."""
    for function in functions(source):
        if function_lines(function) > MAX_FUNCTION_LINES:
            yield Fault(source.path, function.lineno,
                        f"{function.name} has {function_lines(function)} lines; at most {MAX_FUNCTION_LINES}")


def telling_names(source: Source) -> Iterator[Fault]:
    """A module is named for what it decides, never `utils`, `helpers`, `manager` or `common`."""
    for part in source.path.removesuffix(".py").split("/"):
        if VAGUE_NAMES & set(part.split("_")):
            yield Fault(source.path, 1, f"'{part}' says nothing")


def docstrings(source: Source) -> Iterator[Fault]:
    """Every module and every public class says what it owns; a class that only groups tests need not."""
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield Fault(source.path, 1, "the module has no docstring")
    for node in source.tree.body:
        if (isinstance(node, ast.ClassDef) and not node.name.startswith(("_", "Test"))
                and not ast.get_docstring(node)):
            yield Fault(source.path, node.lineno, f"class {node.name} has no docstring")


def narrow_excepts(source: Source) -> Iterator[Fault]:
    """No bare `except`; `except Exception` says on its line, or on the next, why it catches everything."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {source.dotted(kind) for kind in caught if kind is not None}
        if node.type is None:
            yield Fault(source.path, node.lineno, "bare except")
        elif names & {"Exception", "BaseException"} and not _has_comment(source, node.lineno):
            yield Fault(source.path, node.lineno, "catches everything and does not say why")


def plain_log_events(source: Source) -> Iterator[Fault]:
    """A log call names an event, a snake_case literal, and gives fields; it is never a sentence."""
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS):
            continue
        logger = source.dotted(node.func.value).split(".")[-1]
        if logger in LOGGERS and not (len(node.args) == 1 and _is_event_name(node.args[0])):
            yield Fault(source.path, node.lineno, "a log event must be one snake_case name with fields")


def finished(source: Source) -> Iterator[Fault]:
    """Nothing is marked as left to do."""
    for number, line in enumerate(source.lines, 1):
        if UNFINISHED.search(line):
            yield Fault(source.path, number, "unfinished work is marked in the text")


def units_in_names(source: Source) -> Iterator[Fault]:
    """A number of seconds says so: `deadline_s`, never `deadline`. Money is never a float."""
    for name, annotation, line in _annotated_names(source):
        text = ast.unparse(annotation)
        if name.strip("_") in UNITLESS and re.search(r"\b(float|int)\b", text):
            yield Fault(source.path, line, f"'{name}' has no unit")
        if name.endswith("_usd") and re.search(r"\bfloat\b", text):
            yield Fault(source.path, line, f"'{name}' is money and must be a Decimal")


def _is_event_name(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_event_name(node.body) and _is_event_name(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(EVENT_NAME.fullmatch(node.value))


def _has_comment(source: Source, line: int) -> bool:
    here, below = source.lines[line - 1], source.lines[line] if line < len(source.lines) else ""
    return "#" in here or below.lstrip().startswith("#")


def _annotated_names(source: Source) -> Iterator[tuple[str, ast.expr, int]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation, node.lineno
        elif isinstance(node, ast.arg) and node.annotation is not None:
            yield node.arg, node.annotation, node.lineno
