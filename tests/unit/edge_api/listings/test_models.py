"""The list of models as OpenAI's, Prime's and OpenRouter's readers take it: prices twice, nothing made up."""

from typing import Any

import pytest
from openai.types import Model

from control_plane.contracts.snapshot import ModelDetails, ModelFeature
from edge_api.listings.models import describe, list_models
from edge_api.listings.parameters import ALWAYS, supported
from edge_api.routing.table import build_table
from tests.unit.edge_api.builders import MODEL, snapshot


def described(**details: Any) -> dict[str, Any]:
    whole = snapshot()
    model = whole.models[0].model_copy(update={"details": ModelDetails(**details)})
    return describe(build_table(whole.model_copy(update={"models": [model]})).models[MODEL])


def test_prices_come_as_display_numbers_and_as_exact_strings() -> None:
    pricing = described()["pricing"]
    assert (pricing["input_usd_per_mtok"], pricing["output_usd_per_mtok"]) == (0.6, 2.2)
    assert pricing["unit_prices"] == {
        "prompt": "0.0000006", "completion": "0.0000022", "input_cache_read": "0.00000011"}


def test_the_sdk_reads_a_model() -> None:
    assert Model.model_validate(described()).id == MODEL


def test_what_nobody_said_is_absent() -> None:
    shown = described()
    assert set(shown["specs"]) == {"context_window", "max_output_tokens"}
    assert not {"hugging_face_id", "tokenizer"} & set(shown)


def test_what_is_known_is_shown() -> None:
    shown = described(hugging_face_id="zai-org/GLM-5.3", tokenizer="GLM", quantization="nvfp4",
                      features=[ModelFeature.TOOLS])
    assert (shown["hugging_face_id"], shown["tokenizer"]) == ("zai-org/GLM-5.3", "GLM")
    assert shown["specs"] == {
        "context_window": 202_752, "max_output_tokens": 131_072, "quantization": "nvfp4", "supports_tools": True,
        "supports_reasoning": False, "supports_structured_outputs": False}


def test_a_datacenter_is_named_once_however_many_fleets_it_has() -> None:
    whole = snapshot(weights={"us-east-1": 100})
    model = whole.models[0]
    twice = model.model_copy(update={"routes": [
        *model.routes, model.routes[0].model_copy(update={"deployment_id": "b", "fleet_id": "b"})]})
    shown = list_models(build_table(whole.model_copy(update={"models": [twice]})))["data"][0]
    assert shown["datacenters"] == [{"id": "us-east-1", "region": "us-east-1"}]


@pytest.mark.parametrize(("feature", "names"), [
    (ModelFeature.TOOLS, ["tools", "tool_choice"]), (ModelFeature.REASONING, ["reasoning"]),
    (ModelFeature.LOGPROBS, ["logprobs", "top_logprobs"]),
    (ModelFeature.STRUCTURED_OUTPUTS, ["structured_outputs", "response_format"])])
def test_a_feature_brings_its_parameters(feature: ModelFeature, names: list[str]) -> None:
    assert supported(ModelDetails(features=[feature])) == [*ALWAYS, *names]


def test_a_model_that_embeds_takes_none_of_them() -> None:
    assert supported(ModelDetails(features=[ModelFeature.EMBEDDINGS])) == []
