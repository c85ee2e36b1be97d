"""What the environment may say to `meridian up`; everything else is an option of the command."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read when a server's programs are looked for, and when the panel says how the command line is called."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_", frozen=True, extra="ignore", env_ignore_empty=True)

    state: Path | None = Field(
        default=None, description="State directory; `./dev` sets it, `--state` wins over it.")
    pg_bin_dir: Path | None = Field(
        default=None, description="Directory with `postgres` and `initdb` of PostgreSQL 18, instead of the wheel's.")
    valkey_bin: Path | None = Field(
        default=None, description="The program `valkey-server`, instead of the wheel's.")
