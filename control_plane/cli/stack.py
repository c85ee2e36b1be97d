"""Where the control plane and the edge are, and with which secrets: the environment first, then `local.json`."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from control_plane.cli.errors import StackNotFound, UsageFault
from control_plane.cli.settings import Settings

LOCAL_FILE = "local.json"


class LocalFile(BaseModel):
    """What a running local stack wrote about itself; newer fields are ignored."""

    control_plane_urls: list[str] = Field(default_factory=list)
    control_plane_url: str = ""
    operator_token: str = ""
    edge_url: str = ""
    edge_urls: list[str] = Field(default_factory=list)
    api_key: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ControlPlaneAccess:
    """Every replica's address, and the operator token."""

    urls: list[str]
    token: str


@dataclass(frozen=True, slots=True)
class EdgeAccess:
    """The edge's address with its `/v1`, an API key and the model to ask for unless another is named."""

    url: str
    api_key: str
    model: str


def control_plane_access(settings: Settings) -> ControlPlaneAccess:
    """How to reach the control plane. A local stack's token is never sent to an address from the environment.

    Raises:
        StackNotFound: nothing says where it is.
        UsageFault: an address without its token.
    """
    urls, token = _split(settings.control_plane_url), settings.operator_token.get_secret_value()
    if urls and not token:
        raise UsageFault("MERIDIAN_CONTROL_PLANE_URL is set without MERIDIAN_OPERATOR_TOKEN: set both, or neither")
    if not urls:
        local = _read(settings)
        urls = _split(",".join(local.control_plane_urls) or local.control_plane_url)
        token = token or local.operator_token
    if not urls or not token:
        raise StackNotFound(f"{_file(settings)} names no control plane: is the stack still starting?")
    return ControlPlaneAccess(urls, token)


def edge_access(settings: Settings) -> EdgeAccess:
    """How to reach the edge. A local stack's key is never sent to an address from the environment.

    Raises:
        StackNotFound: nothing says where it is.
        UsageFault: an address without its key.
    """
    url, key, model = settings.edge_url.rstrip("/"), settings.api_key.get_secret_value(), settings.model
    if url and not key:
        raise UsageFault("MERIDIAN_EDGE_URL is set without MERIDIAN_API_KEY: set both, or neither")
    if not url:
        local = _read(settings)
        url, key, model = local.edge_url.rstrip("/"), key or local.api_key, model or local.model
    if not url or not key:
        raise StackNotFound(f"{_file(settings)} names no edge: is the stack still starting?")
    return EdgeAccess(url, key, model)


def local_edge_urls(settings: Settings) -> list[str]:
    """Where a local stack's edges are, without `/v1`; none where there is no stack."""
    try:
        return [url.rstrip("/").removesuffix("/v1") for url in _read(settings).edge_urls]
    except StackNotFound:
        return []


def _file(settings: Settings) -> Path:
    return settings.state / LOCAL_FILE


def _split(urls: str) -> list[str]:
    return [url.strip().rstrip("/") for url in urls.split(",") if url.strip()]


def _read(settings: Settings) -> LocalFile:
    try:
        return LocalFile.model_validate_json(_file(settings).read_bytes())
    except FileNotFoundError as error:
        raise StackNotFound(
            f"no stack found in {settings.state}: start one with ./dev up, or pass --state DIR") from error
    except OSError as error:
        raise StackNotFound(f"cannot read {_file(settings)}: {error.strerror}") from error
    except ValidationError as error:
        raise StackNotFound(f"{_file(settings)} is damaged: stop the stack and start it again") from error
