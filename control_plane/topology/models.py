"""Tables of the topology slice: what operators declared, and beside it what agents last observed."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from control_plane.contracts.agent_sync import DeploymentPhase
from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.snapshot import TrafficState
from control_plane.db import Base, enum_text


class Region(Base):
    """A geography."""

    __tablename__ = "region"

    id: Mapped[str] = mapped_column(primary_key=True)


class Datacenter(Base):
    """A failure domain. `traffic_state` and `weight` are intent; health is not stored here. `ramp_percent` is what it
    gets of its weight while it drains or warms up; `evacuate`: its open streams go on elsewhere.

    `generation` grows with every change of either; `changed_*` and `reason` tell of the last one.
    """

    __tablename__ = "datacenter"

    id: Mapped[str] = mapped_column(primary_key=True)
    region_id: Mapped[str] = mapped_column(ForeignKey("region.id"))
    traffic_state: Mapped[TrafficState] = mapped_column(enum_text(TrafficState))
    weight: Mapped[int]
    ramp_percent: Mapped[int] = mapped_column(server_default="0")
    evacuate: Mapped[bool] = mapped_column(server_default="false")
    generation: Mapped[int]
    changed_at: Mapped[datetime] = mapped_column(server_default=func.now())
    changed_by: Mapped[str]
    reason: Mapped[str]

    __table_args__ = (
        CheckConstraint("weight BETWEEN 1 AND 10000", name="weight_range"),
        CheckConstraint("ramp_percent BETWEEN 0 AND 100", name="ramp_range"),
    )


class Fleet(Base):
    """One Dynamo cluster. `generation` numbers its desired state, `command_seq` its newest command."""

    __tablename__ = "fleet"

    id: Mapped[str] = mapped_column(primary_key=True)
    datacenter_id: Mapped[str] = mapped_column(ForeignKey("datacenter.id"), index=True)
    ingress_url: Mapped[str]
    gpu_type: Mapped[str]
    gpu_total: Mapped[int]
    generation: Mapped[int]
    command_seq: Mapped[int] = mapped_column(server_default="0")


class Model(Base):
    """A model that edges offer, at the price version that new requests are rated by. `details` are for listings. No
    operation leaves it fewer than `min_datacenters` healthy datacenters."""

    __tablename__ = "model"

    id: Mapped[str] = mapped_column(primary_key=True)
    display_name: Mapped[str]
    owned_by: Mapped[str]
    context_window: Mapped[int]
    max_output_tokens: Mapped[int]
    default_max_tokens: Mapped[int | None]
    price_version: Mapped[str]
    min_datacenters: Mapped[int] = mapped_column(server_default="1")
    details: Mapped[dict[str, Any]] = mapped_column(server_default="{}")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Deployment(Base):
    """A model on a fleet: `engine` and the pools are desired, at `generation`; the rest is what its agent last saw.

    `phase` is null while nobody ever saw it; `inflight`, `queued` and `kv_usage` are null when they could not be read.
    `facts` are the engine's (`EngineFacts`), empty until it told them. `share_permille` is its part of its datacenter's
    weight for its model; only operations change it.
    """

    __tablename__ = "deployment"

    id: Mapped[str] = mapped_column(primary_key=True)
    model_id: Mapped[str] = mapped_column(ForeignKey("model.id"))
    fleet_id: Mapped[str] = mapped_column(ForeignKey("fleet.id"), index=True)
    engine: Mapped[dict[str, Any]]
    generation: Mapped[int]
    phase: Mapped[DeploymentPhase | None] = mapped_column(enum_text(DeploymentPhase))
    observed_generation: Mapped[int | None]
    observed_at: Mapped[datetime | None]
    inflight: Mapped[int | None]
    queued: Mapped[int | None]
    kv_usage: Mapped[float | None]
    share_permille: Mapped[int] = mapped_column(server_default="1000")
    message: Mapped[str] = mapped_column(server_default="")
    facts: Mapped[dict[str, Any]] = mapped_column(server_default="{}")

    __table_args__ = (
        UniqueConstraint("model_id", "fleet_id"),
        CheckConstraint("share_permille BETWEEN 0 AND 10000", name="share_range"),
    )


class Pool(Base):
    """Replicas of one role of a deployment; `ready_replicas` is null until observed. `max_inflight` is how many
    requests one replica holds well, null if nobody said."""

    __tablename__ = "pool"

    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployment.id"), primary_key=True)
    role: Mapped[PoolRole] = mapped_column(enum_text(PoolRole), primary_key=True)
    replicas: Mapped[int]
    gpus_per_replica: Mapped[int]
    max_inflight: Mapped[int | None]
    ready_replicas: Mapped[int | None]

    __table_args__ = (CheckConstraint("replicas >= 0", name="replicas_not_negative"),)
