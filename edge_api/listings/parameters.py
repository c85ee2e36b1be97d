"""The request parameters that a model is said to support: those that every engine takes, and those of its features."""

from control_plane.contracts.snapshot import ModelDetails, ModelFeature

ALWAYS = ("max_tokens", "temperature", "top_p", "stop", "seed")
OF_FEATURE = {
    ModelFeature.TOOLS: ("tools", "tool_choice"),
    ModelFeature.STRUCTURED_OUTPUTS: ("structured_outputs", "response_format"),
    ModelFeature.REASONING: ("reasoning",),
    ModelFeature.LOGPROBS: ("logprobs", "top_logprobs"),
}


def supported(details: ModelDetails) -> list[str]:
    """Their names, those of features that nobody told of left out."""
    if ModelFeature.EMBEDDINGS in details.features:
        return []
    return [*ALWAYS, *(name for feature, names in OF_FEATURE.items() if feature in details.features for name in names)]
