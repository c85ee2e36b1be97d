"""Every setting of the control plane and its worker, read from `MERIDIAN_*` environment variables."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from control_plane.contracts.capacity import PlannerMode


class Settings(BaseSettings):
    """The control plane's settings; the worker reads the same ones."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8710, ge=0, le=65_535, description="Port to listen on.")
    database_url: str = Field(
        pattern=r"^postgresql\+asyncpg://",
        description="Postgres, as `postgresql+asyncpg://user:password@host:port/name`.")
    redis_url: str = Field(
        default="",
        description="Valkey or Redis, as `redis://:password@host:port/0`. Empty: nothing is relayed to Celery.")
    signing_key_file: Path = Field(
        description="File with the Ed25519 key that signs snapshots; made if missing. The same for all replicas.")
    environment: str = Field(
        default="local", pattern=r"^[a-z0-9]+$",
        description="Name inside every secret made here: `sk_meridian_<environment>_…`.")
    statement_timeout_s: float = Field(default=10.0, gt=0, description="Longest that one SQL statement may take.")
    lock_timeout_s: float = Field(default=5.0, gt=0, description="Longest that a statement may wait for a lock.")
    pool_size: int = Field(default=10, ge=1, description="Database connections kept open; twice as many at most.")
    start_deadline_s: float = Field(
        default=60.0, gt=0, description="How long to wait at start for Postgres and for another replica's migrations.")
    request_deadline_s: float = Field(
        default=60.0, gt=0, description="Longest that a request may take, long-polls included.")
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1_024, description="Largest request body.")
    identity_cache_s: float = Field(
        default=2.0, ge=0, le=5, description="How long a machine's public key is trusted before it is read again.")
    usage_retention_days: int = Field(default=35, ge=2, description="How old a usage record may be when it arrives.")
    drain_verify_s: float = Field(
        default=60.0, ge=0, description="How long a datacenter must stay without requests before it counts as drained.")
    ramp_hold_s: float = Field(
        default=10.0, ge=0, description="How long each degree of a drain, a restore or a shift is held.")
    ack_wait_s: float = Field(
        default=30.0, gt=0, description="How long a live edge may take to route by an operation's snapshot.")
    evacuate_wait_s: float = Field(
        default=30.0, gt=0, description="How long edges may take to move streams out of a datacenter.")
    flap_wait_s: float = Field(
        default=5.0, ge=0,
        description="Shortest time between a change of a datacenter's traffic and the next operation's.")
    watch_s: float = Field(
        default=60.0, ge=0, description="How long a replaced deployment is watched under traffic in a rollout.")
    failover_after_s: float = Field(
        default=30.0, ge=0,
        description="How long a quorum of edges must call a datacenter lost before it fails over by itself.")
    failover_again_after_s: float = Field(
        default=600.0, ge=0, description="How long a datacenter that was restored or failed over is left alone by "
                                         "automatic failover.")
    capacity_mode: PlannerMode = Field(
        default=PlannerMode.ADVISE,
        description="What the capacity planner may do until an operator says otherwise (`meridian capacity mode`): "
                    "`off`, `advise` (plan and tell) or `auto` (carry out).")
    capacity_interval_s: float = Field(default=60.0, gt=0, description="How often the capacity planner plans.")
    capacity_sustain_s: float = Field(
        default=600.0, ge=0, description="How long a pool must be too full or too empty before it is changed.")
    capacity_step_interval_s: float = Field(
        default=300.0, ge=0, description="Shortest time between two steps of one model.")
    capacity_reversal_s: float = Field(
        default=1_800.0, ge=0, description="Shortest time between a step of a pool and one the other way.")
    capacity_settle_s: float = Field(
        default=900.0, ge=0, description="How long a replica that was added may take until it is ready.")
    capacity_release_s: float = Field(
        default=900.0, ge=0, description="How long a replica that was taken away may hold its GPUs.")
    capacity_spare_datacenters: int = Field(
        default=1, ge=0, le=10,
        description="How many datacenters of a model may be lost while the others still hold all of its requests.")
    state_dir: Path | None = Field(
        default=None,
        description="Directory in which the worker's beat keeps when each regular task ran last. Without it the beat "
                    "counts anew from each start of the worker.")
    worker_port: int = Field(
        default=8722, ge=0, le=65_535, description="Port of the worker's health and metrics; 0 picks a free one.")
    heartbeat_file: Path | None = Field(default=None, description="File that the worker touches while it is alive.")
