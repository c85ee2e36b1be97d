"""How the command line finds what it talks to, when the local stack's own file is not to be used."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read once an invocation. Addresses and secrets given here win over `local.json` in the state directory."""

    model_config = SettingsConfigDict(env_prefix="MERIDIAN_", extra="ignore")

    state: Path = Field(
        default=Path(".meridian"), description="State directory of the local stack; `--state` wins over it.")
    control_plane_url: str = Field(
        default="", description="Control plane to talk to; several, separated by commas, are tried in turn.")
    operator_token: SecretStr = Field(default=SecretStr(""), description="Operator token for the control plane.")
    operator_dir: Path | None = Field(
        default=None, description="Directory of your own key for `meridian edge override` and of the list of edges. "
                                  "Without it `operator` in the state directory, or `~/.meridian` when "
                                  "MERIDIAN_CONTROL_PLANE_URL is set.")
    edge_url: str = Field(default="", description="Edge that `meridian chat` talks to, with its `/v1`.")
    api_key: SecretStr = Field(default=SecretStr(""), description="API key that `meridian chat` uses.")
    model: str = Field(default="", description="Model that `meridian chat` asks for unless `--model` names one.")
