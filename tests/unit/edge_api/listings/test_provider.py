"""The provider listing is valid under OpenRouter's own schema, whatever a model says of itself."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from control_plane.contracts.pricing import Price
from control_plane.contracts.snapshot import ModelDetails, ModelFeature
from edge_api.listings.provider import document, list_provider
from edge_api.routing.table import RoutingTable, build_table
from tests.unit.edge_api.builders import MODEL, PRICE, snapshot

SCHEMA = json.loads((Path(__file__).parent / "openrouter-provider-schema-2.4.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA | {"$ref": "#/components/schemas/ModelDocumentV2"})
QUANTIZATIONS = SCHEMA["components"]["schemas"]["Quantization"]["enum"]
MONEY = st.decimals(min_value=0, max_value=1, places=12)


def table(weights: dict[str, int] | None = None, price: Price = PRICE, **details: Any) -> RoutingTable:
    whole = snapshot(weights=weights, reason="drained" if weights else None)
    model = whole.models[0].model_copy(update={"details": ModelDetails(**details), "price": price})
    return build_table(whole.model_copy(update={"models": [model]}))


def listed(**facts: Any) -> dict[str, Any]:
    return document(table(**facts).models[MODEL])


def test_the_schema_refuses_what_it_must() -> None:
    assert not VALIDATOR.is_valid(listed() | {"surprise": 1})
    assert not VALIDATOR.is_valid(listed() | {"input_modalities": []})


@given(st.builds(Price, version=st.just("pv_1"), input_usd=MONEY, cached_input_usd=MONEY, output_usd=MONEY),
       st.lists(st.sampled_from(ModelFeature), unique=True), st.sampled_from([None, *QUANTIZATIONS]),
       st.none() | st.text(min_size=1), st.none() | st.text(min_size=1))
def test_whatever_is_known_of_a_model_it_is_valid(
        price: Price, features: list[ModelFeature], quantization: str | None, tokenizer: str | None,
        hugging_face_id: str | None) -> None:
    VALIDATOR.validate(listed(price=price, features=features, quantization=quantization, tokenizer=tokenizer,
                              hugging_face_id=hugging_face_id))


def test_every_price_is_the_exact_string() -> None:
    shown = listed()
    (text,) = shown["input_modalities"]
    assert text["pricing"] == [
        {"type": "prompt", "unit": "token", "cost_usd": "0.0000006"},
        {"type": "cached_prompt", "unit": "token", "cost_usd": "0.00000011", "implicit": True}]
    assert shown["output_modalities"][0]["pricing"] == [
        {"type": "completion", "unit": "token", "cost_usd": "0.0000022"}]


def test_what_is_unknown_is_left_out() -> None:
    assert not {"quantization", "tokenizer", "hugging_face_id", "datacenters", "compliance"} & set(listed())


def test_features_become_parameters() -> None:
    shown = listed(features=[ModelFeature.TOOLS, ModelFeature.LOGPROBS])["output_modalities"][0]["supported_parameters"]
    assert shown["tools"] == shown["logprobs"] == {"type": "boolean"}
    assert "reasoning" not in shown
    assert shown["max_tokens"] == {"type": "integer", "min": 1, "max": 131_072, "unit": "token"}


def test_a_drained_model_is_not_ready() -> None:
    assert listed()["is_ready"] is True
    assert listed(weights={"us-east-1": 0})["is_ready"] is False


@pytest.mark.parametrize(("output_usd", "is_free"), [("0", True), ("0.1", False)])
def test_only_what_costs_nothing_is_free(output_usd: str, is_free: bool) -> None:
    price = Price(version="pv", input_usd=Decimal(0), cached_input_usd=Decimal(0), output_usd=Decimal(output_usd))
    assert listed(price=price)["is_free"] is is_free


def test_all_models_are_listed_by_id() -> None:
    shown = list_provider(build_table(snapshot(models=("b", "a"))))
    assert [model["id"] for model in shown["data"]] == ["a", "b"]
