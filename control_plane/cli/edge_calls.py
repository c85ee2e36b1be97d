"""Edges asked directly by an operator, without the control plane: which there are, whose key signs, and the calls.

Owns two files in the operator's directory, both 0600: `override.key`, the private key, and `edges.json`, the list of
edges that the last `meridian status` told.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError

from control_plane.cli.client import describe
from control_plane.cli.errors import StackNotFound, UsageFault
from control_plane.cli.settings import Settings
from control_plane.cli.stack import local_edge_urls
from control_plane.contracts.clock import SystemClock
from control_plane.contracts.operator import EdgeStatus
from control_plane.contracts.override import PATH, EdgeStanding, OverrideAnswer, SignedOverride
from control_plane.contracts.signing import SignedRequest, SigningKey, write_private

KEY_FILE, EDGES_FILE = "override.key", "edges.json"
DEADLINE_S = 5.0
CONNECT_DEADLINE_S = 2.0
AT_ONCE = 16

Answer = TypeVar("Answer")


class KnownEdge(BaseModel):
    """An edge and where it is reached."""

    url: str
    id: str = ""
    region: str = ""


class KnownEdges(BaseModel):
    """The list on disk."""

    edges: list[KnownEdge] = Field(default_factory=list)


class NoAnswer(Exception):
    """An edge did not answer, or not as an edge does; the message says what."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An edge that was asked, and what it said of itself or why it did not."""

    url: str
    standing: EdgeStanding | None = None
    fault: str = ""


def operator_dir(settings: Settings) -> Path:
    """Where an operator's own files are."""
    if settings.operator_dir is not None:
        return settings.operator_dir
    return Path.home() / ".meridian" if settings.control_plane_url else settings.state / "operator"


def remember(settings: Settings, edges: Sequence[EdgeStatus]) -> None:
    """Keeps where the edges are, for the day when nobody else can tell. A disk that fails does not matter today."""
    known = [KnownEdge(url=edge.url, id=edge.id, region=edge.region) for edge in edges if edge.url]
    if not known:
        return
    path = operator_dir(settings) / EDGES_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, KnownEdges(edges=known).model_dump_json(indent=2).encode())
    except OSError:
        return


def known_urls(settings: Settings) -> list[str]:
    """Where the edges are: as the last status told, else as the local stack's own file does.

    Raises:
        StackNotFound: nothing says.
    """
    path = operator_dir(settings) / EDGES_FILE
    try:
        return [edge.url for edge in KnownEdges.model_validate_json(path.read_bytes()).edges]
    except (OSError, ValidationError):
        urls = [] if settings.control_plane_url else local_edge_urls(settings)
    if not urls:
        raise StackNotFound(f"{path} lists no edge: name each with --edge URL; meridian status keeps the list while "
                            "the control plane answers")
    return urls


def load_key(settings: Settings, file: Path | None) -> SigningKey:
    """The operator's private key.

    Raises:
        UsageFault: there is none.
    """
    path = file or operator_dir(settings) / KEY_FILE
    if not path.is_file():
        raise UsageFault(f"there is no key at {path}: make one with meridian edge keygen, and have it registered")
    try:
        return SigningKey.load_or_create(path)
    except (OSError, ValueError) as error:
        raise UsageFault(f"{path} cannot be used as a key: {error}") from error


def ask_all(urls: Sequence[str], key: SigningKey) -> list[Asked]:
    """What each edge says of itself."""
    return each(urls, lambda url: _asked(url, key))


def each(items: Sequence[str], call: Callable[[str], Answer]) -> list[Answer]:
    """`call` for each, several at once, in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, items))


def give(url: str, signed: SignedOverride) -> OverrideAnswer:
    """Hands an edge an order.

    Raises:
        NoAnswer: it did not answer; whether it has the order is not known, and giving it again does no harm.
    """
    content = signed.model_dump_json().encode()
    return _parsed(_send("POST", url, content, {"content-type": "application/json"}), OverrideAnswer)


def _asked(url: str, key: SigningKey) -> Asked:
    headers = SignedRequest("GET", PATH, b"").sign(key.public.key_id, key, SystemClock())
    try:
        response = _send("GET", url, b"", headers)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            return Asked(url, fault=f"it does not believe this key: {_parsed(response, OverrideAnswer).message}")
        return Asked(url, _parsed(response, EdgeStanding))
    except NoAnswer as error:
        return Asked(url, fault=str(error))


def _send(method: str, url: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    try:
        with httpx.Client(trust_env=False, timeout=httpx.Timeout(DEADLINE_S, connect=CONNECT_DEADLINE_S)) as client:
            return client.request(method, url + PATH, content=content, headers=headers)
    except httpx.TransportError as error:
        raise NoAnswer(describe(error)) from error
    except httpx.InvalidURL as error:
        raise UsageFault(f"{url} is no address: {error}") from error


Told = TypeVar("Told", bound=BaseModel)


def _parsed(response: httpx.Response, kind: type[Told]) -> Told:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        raise NoAnswer(f"no edge of this release answers there (HTTP {response.status_code})") from error
