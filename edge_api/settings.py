"""Everything that can be set on an edge, from environment variables with the prefix MERIDIAN_."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from edge_api.client_address import Network

MEBIBYTE = 1 << 20


class Settings(BaseSettings):
    """The edge's settings."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_")

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8700, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    control_plane_urls: Annotated[list[str], NoDecode] = Field(
        min_length=1, description="Where the control plane's replicas are, separated by commas.")
    state_dir: Path = Field(
        description="Where identity, last good snapshot, key cache and usage outbox live. It must survive restarts.")
    enrolment_token_file: Path | None = Field(
        None, description="File with a one-time enrolment token; needed until this edge has its identity, and "
                          "again when the control plane does not know it any more.")
    backlog: int = Field(2_048, ge=1, description="Connections that may wait to be accepted.")
    keep_alive_s: int = Field(75, ge=1, description="How long an idle client connection stays open.")
    leaving_notice_s: float = Field(
        0.0, ge=0, description="After SIGTERM: how long new requests are still taken while /readyz says 503, so that "
                               "whoever balances the load turns away first. A second signal ends it.")
    shutdown_grace_s: int = Field(
        300, ge=0, description="After SIGTERM: how long open requests may go on before they are cut.")
    last_ship_s: float = Field(
        5.0, ge=0, description="After the last request: how long the edge tries to ship the rest of its usage.")
    poll_wait_s: float = Field(
        20.0, gt=0, le=60, description="How long the first poll of the control plane may wait for news.")
    key_cache_size: int = Field(100_000, ge=1, description="API keys kept in memory and on disk, by digest.")
    key_refresh_s: float = Field(
        60.0, gt=0, description="Age at which a key in use is looked up again in the background.")
    outbox_segment_bytes: int = Field(
        8 * MEBIBYTE, ge=64 * 1024, description="Size at which the usage outbox begins a new segment file.")
    outbox_max_bytes: int = Field(
        1024 * MEBIBYTE, ge=MEBIBYTE,
        description="Unshipped usage kept on disk. Beyond it requests are refused (503) rather than unmetered.")
    outbox_kept_s: float = Field(
        7_200.0, ge=0, description="How long usage that was shipped is kept on disk, to be shipped once more if the "
                                   "control plane's database is replaced by an older copy.")
    outbox_kept_bytes: int = Field(
        256 * MEBIBYTE, ge=0, description="Shipped usage kept on disk at most; 0 keeps none.")
    valkey_url: SecretStr | None = Field(
        None, description="Where limits of requests, tokens and concurrency are shared with other edges, for example "
                          "redis://:password@host:6379/0. Without it, and while it is away, each edge enforces its "
                          "share of every limit by itself.")
    override_url: str | None = Field(
        None, pattern=r"^https?://[^/]+$", max_length=200,
        description="Where operators reach this edge directly when the control plane is off, for `meridian edge "
                    "override`: its own address, not that of a balancer before several edges.")
    trusted_proxies: Annotated[list[Network], NoDecode] = Field(
        default_factory=list, description="Networks (CIDR, separated by commas) of the proxies before this edge, whose "
                                          "X-Forwarded-For is believed.")
    max_body_bytes: int = Field(32 * MEBIBYTE, ge=1024, description="Longest request body; 413 beyond it.")
    max_bodies_bytes: int = Field(
        4096 * MEBIBYTE, ge=MEBIBYTE,
        description="Bodies of all open requests together, those of open streams included; a team may have half of it. "
                    "503 beyond it. Set it to about half of the memory that the edge may take.")
    max_attempts: int = Field(
        3, ge=1, le=8, description="Datacenters that one request may try, and each choice of a request for several.")
    upstream_ca_file: Path | None = Field(
        None, description="PEM file with the authorities that datacenters' certificates must come from; without it "
                          "this machine's own are trusted.")
    probe_timeout_s: float = Field(
        2.0, gt=0, description="How long a datacenter may take to answer a probe; two that fail half a second apart "
                               "mean that it is lost.")
    connect_timeout_s: float = Field(2.0, gt=0, description="How long a connection to a datacenter may take.")
    first_byte_timeout_s: float = Field(
        300.0, gt=0, description="How long a datacenter may be silent before its answer's first event.")
    idle_timeout_s: float = Field(120.0, gt=0, description="How long a datacenter may be silent within an answer.")

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _split_networks(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("control_plane_urls", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return [url.strip().rstrip("/") for url in value.split(",") if url.strip()]
