"""xgrammar without torch: its grammars are made and printed by a library of its own, and only its masks are tensors.

Importing the package itself imports torch and transformers, of which nothing here has any use (2 GB, and seconds at
each start). So the package is entered by its modules.
"""

import functools
import importlib
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

from pydantic import JsonValue

PACKAGE = "xgrammar"


class GrammarRefused(Exception):
    """xgrammar makes no grammar of this; the message holds nothing of it."""


def is_installed() -> bool:
    """Whether grammars can be made here."""
    return importlib.util.find_spec(PACKAGE) is not None and importlib.util.find_spec("tvm_ffi") is not None


def of_json_schema(schema: JsonValue) -> str:
    """The grammar of a schema's JSON texts, with any white space between its parts, as engines make it."""
    return _printed("from_json_schema", json.dumps(schema))


def of_structural_tag(tag: JsonValue) -> str:
    return _printed("from_structural_tag", json.dumps(tag))


def of_regex(regex: str) -> str:
    return _printed("from_regex", regex)


def of_ebnf(ebnf: str) -> str:
    """The same grammar as xgrammar prints it."""
    return _printed("from_ebnf", ebnf)


def grammar(maker: str, source: str) -> Any:
    """The library's handle of a grammar.

    Raises:
        GrammarRefused: the library makes none of it.
    """
    make = getattr(_module("grammar").Grammar, maker)
    try:
        return make(source)._handle
    except Exception as error:  # whatever the library raises: its messages quote the input, so none is kept
        raise GrammarRefused(f"no grammar can be made of it ({type(error).__name__})") from None


def core() -> Any:
    """The library's own classes."""
    return _module("base")._core


def _printed(maker: str, source: str) -> str:
    return str(grammar(maker, source).to_string())


@functools.cache
def _module(name: str) -> ModuleType:
    """One of the package's modules."""
    if PACKAGE not in sys.modules:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.submodule_search_locations is None:
            raise GrammarRefused("xgrammar is not installed")
        package = ModuleType(PACKAGE)
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules[PACKAGE] = package
        importlib.import_module(f"{PACKAGE}.load_binding")
    return importlib.import_module(f"{PACKAGE}.{name}")
