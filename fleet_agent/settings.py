"""Every setting of the fleet agent, read from `MERIDIAN_*` environment variables."""

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """What an agent is told about its surroundings; the fleet that it speaks for comes from its enrolment."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_", frozen=True, extra="ignore")

    host: str = Field(default="127.0.0.1", description="Address that health and metrics listen on.")
    port: int = Field(ge=0, le=65_535, description="Port of health and metrics; 0 picks a free one.")
    control_plane_urls: Annotated[list[str], NoDecode] = Field(
        min_length=1, description="Replicas of the control plane, separated by commas.")
    state_dir: Path = Field(description="Directory of the agent's key, identity and store; one agent for each.")
    enrolment_token_file: Path | None = Field(
        default=None,
        description="File with a one-time enrolment token; needed until the agent is enrolled, and again when the "
                    "control plane does not know it any more.")
    engine_python: Path | None = Field(
        default=None, description="Python that has the engine installed and runs `-m engine`; by default the agent's.")
    engine_plan_command: list[str] = Field(
        default=[], description="JSON list: the command that answers plan requests instead of `-m engine plan`.")
    engine_host: str = Field(default="127.0.0.1", description="Address that the engine's processes listen on.")
    engine_port_base: int = Field(
        ge=1, le=32_668,  # the engine's workers can listen on none above 32767
        description="First of the 100 ports that belong to the fleet's engine.")
    engine_state_dir: Path = Field(description="Directory of the engine's logs, models and discovery files.")
    stop_engine_on_exit: bool = Field(
        default=False, description="Whether ending the agent also ends the engine; off, it goes on serving.")
    stop_grace_s: float = Field(
        default=5.0, ge=0, le=3_600, description="Seconds that the engine has to end when the agent ends it.")

    @field_validator("control_plane_urls", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [url.strip().rstrip("/") for url in value.split(",") if url.strip()]
        return value

    @property
    def plan_command(self) -> list[str]:
        """The command that reads a plan request on standard input and prints a launch plan."""
        return self.engine_plan_command or [str(self.engine_python or sys.executable), "-m", "engine", "plan"]
