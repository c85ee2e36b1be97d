"""Other names of models. Claude Code's model picker keeps only ids with "claude" or "anthropic" in them, so each model
goes by such a name, too; it means the model itself, and is billed as it."""

PREFIX = "claude-compat/"


def alias_of(model_id: str) -> str:
    """The name that the picker keeps."""
    return PREFIX + model_id


def resolve_alias(model_id: str) -> str:
    """The model's own id, whichever of its names this is."""
    return model_id.removeprefix(PREFIX)
