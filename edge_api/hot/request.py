"""A request on its way upstream: checked against its model, its bytes ready to send, its worst case counted."""

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec
from msgspec import json

from control_plane.contracts.keys import Principal
from control_plane.contracts.snapshot import ModelFeature
from edge_api import errors
from edge_api.admission.estimate import completion_bound, prompt_bound, worst_cost_nusd
from edge_api.dialects.base import Asked, StreamVoice, Upstream
from edge_api.dialects.reading import wrong_field
from edge_api.errors import Refusal
from edge_api.hot.fields import NOTHING, Fields
from edge_api.hot.services import Need
from edge_api.hot.splice import Pieces, upstream_body
from edge_api.routing.table import RoutedModel

REGION_HEADER = b"x-meridian-region"
SERVICE_TIERS = frozenset({"auto", "default", "standard_only", "flex", "priority", "fast", "scale"})


class Provider(msgspec.Struct, forbid_unknown_fields=True):
    """`provider` of a request: the regions it may be served in. Of OpenRouter's other routing preferences those that
    say whom to prefer are taken, for there is nobody else here; those that would have to be kept are refused."""

    only: list[str] | None = None
    ignore: list[str] | None = None
    order: list[str] | None = None
    sort: msgspec.Raw = NOTHING
    allow_fallbacks: bool | None = None
    require_parameters: bool | None = None
    data_collection: str | None = None
    preferred_min_throughput: msgspec.Raw = NOTHING
    preferred_max_latency: msgspec.Raw = NOTHING


MAX_CHOICES = 8
MAX_PROMPTS = 128


class Prepared(msgspec.Struct, frozen=True):
    """What is sent: `pieces`, `length` bytes in all, without a salt. `max_tokens` is what an answer may have at most,
    null if nothing says so; `texts` is how many prompts there are, each with an answer of its own."""

    asked: Asked
    pieces: Pieces
    length: int
    wants_usage: bool
    max_tokens: int | None
    texts: int = 1

    @property
    def choices(self) -> int:
        """How many answers are asked for."""
        return self.asked.fields.n or 1


_decode_object = json.Decoder(dict[str, msgspec.Raw]).decode
_decode_provider = json.Decoder(Provider | None).decode


def prepare(asked: Asked, model: RoutedModel, always_usage: bool) -> Prepared:
    """The request for that model.

    Raises:
        Refusal: it asks for more than the model can give.
    """
    fields = asked.fields
    if asked.upstream is Upstream.EMBEDDINGS:
        _check_embeddings(asked, model)
    _check_limit(fields, model.max_output_tokens)
    if fields.n is not None and not 1 <= fields.n <= MAX_CHOICES:
        raise Refusal(errors.INVALID_VALUE, f"'n' is {fields.n}; it may be 1 to {MAX_CHOICES}", "n")
    if fields.not_served:
        raise Refusal(errors.UNSUPPORTED_PARAMETER, f"'{fields.not_served}' asks for what is not served here",
                      fields.not_served)
    if fields.service_tier is not None and fields.service_tier not in SERVICE_TIERS:
        raise Refusal(errors.INVALID_VALUE, f"'service_tier' is {fields.service_tier[:100]!r}; it may be one of "
                      + ", ".join(sorted(SERVICE_TIERS)), "service_tier")
    texts = 1 if asked.upstream is Upstream.CHAT else fields.texts
    if texts > 1 and asked.upstream is Upstream.COMPLETIONS:
        _check_prompts(asked, texts)
    pieces = upstream_body(asked, model.default_max_tokens)
    limit = fields.limit
    return Prepared(asked, pieces, sum(map(len, pieces)), always_usage or asked.wants_usage,
                    model.default_max_tokens if limit is None else limit, texts)


def one_choice(prepared: Prepared, model: RoutedModel) -> Prepared:
    """The request for one choice alone, without its seed. All choices share its bytes, for they may be many."""
    fields = _decode_object(prepared.asked.body)
    for name in ("n", "best_of", "seed"):
        fields.pop(name, None)
    alone = msgspec.structs.replace(prepared.asked, body=json.encode(fields))
    return msgspec.structs.replace(prepared, asked=alone, pieces=upstream_body(alone, model.default_max_tokens),
                                   wants_usage=False)


def choice_of(alone: Prepared, index: int, voice: Callable[[], StreamVoice]) -> Prepared:
    """One of several choices, told by `voice`. With a seed each choice has its own."""
    asked, pieces = alone.asked, alone.pieces
    if asked.fields.seed is not None:
        pieces = [b'{"seed":%d,%b' % (asked.fields.seed + index, bytes(pieces[0][1:])), *pieces[1:]]
    return msgspec.structs.replace(alone, asked=msgspec.structs.replace(asked, voice=voice), pieces=pieces,
                                   length=sum(map(len, pieces)))


def prompt_tokens(model: RoutedModel, prepared: Prepared) -> int:
    """The most tokens that its prompts can have; none where nothing is generated, for then nothing is billed."""
    if prepared.asked.counts is not None:
        return 0
    return prompt_bound(prepared.length, model.context_window * prepared.texts)


def worst_case(request_id: UUID, principal: Principal, model: RoutedModel, prepared: Prepared) -> Need:
    """What the request can use at most."""
    if prepared.asked.counts is not None:
        return Need(request_id, principal, model.id, 0, 0, 0)  # nothing is generated, nothing is billed
    texts, prompt = prepared.texts, prompt_tokens(model, prepared)
    # Where nobody names a limit, an engine goes on as far as its context reaches.
    longest = model.context_window if prepared.max_tokens is None else model.max_output_tokens
    completion = 0 if prepared.asked.upstream is Upstream.EMBEDDINGS else completion_bound(
        prepared.max_tokens, longest, prepared.choices * texts)
    return Need(request_id, principal, model.id, prompt, completion, worst_cost_nusd(model.tariff, prompt, completion))


def allowed_regions(fields: Fields, headers: Mapping[bytes, bytes], team: list[str] | None,
                    known: frozenset[str]) -> frozenset[str] | None:
    """The regions that the request may be served in; none: any. The team's own policy is never widened.

    Raises:
        Refusal: the request names a region that does not exist, or none that its team allows.
    """
    header = headers.get(REGION_HEADER)
    if fields.provider is NOTHING and header is None:
        return None if team is None else frozenset(team)
    provider = _provider(fields)
    named = [part.strip() for part in header.decode("ascii", "replace").split(",")] if header else None
    only, ignored = provider.only if provider.only is not None else named, frozenset(provider.ignore or ())
    param = "provider.only" if provider.only is not None else "X-Meridian-Region"
    for region in [*(only or ()), *ignored]:
        if region not in known:
            raise Refusal(errors.INVALID_VALUE, f"there is no region {region[:100]!r}; there is "
                          + ", ".join(sorted(known)), param)
    allowed = (known if only is None else frozenset(only)) - ignored
    if team is not None:
        allowed &= frozenset(team)
    if not allowed:
        raise Refusal(errors.REGION_NOT_ALLOWED, "this key may not be served in any of the regions that are asked for",
                      param)
    return allowed


def _provider(fields: Fields) -> Provider:
    if fields.provider is NOTHING:
        return Provider()
    try:
        return _decode_provider(fields.provider) or Provider()
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), "provider") from None


def _check_embeddings(asked: Asked, model: RoutedModel) -> None:
    """Refuses what makes no embeddings, and what would have them made several times and billed once."""
    features = model.listing.details.features
    if features and ModelFeature.EMBEDDINGS not in features:
        raise Refusal(errors.INVALID_VALUE, f"the model '{model.id}' makes no embeddings", "model")
    for param, is_asked in (("stream", asked.streamed), ("n", (asked.fields.n or 1) > 1)):
        if is_asked:
            raise Refusal(errors.UNSUPPORTED_PARAMETER, f"'{param}': embeddings are made once and whole", param)


def _check_limit(fields: Fields, max_output_tokens: int) -> None:
    """Refuses an answer longer than the model can give; the refusal names the field and the model's own limit. Less
    than one token is refused, too: it would make room in the sender's allowance instead of taking some."""
    for param, limit in (("max_tokens", fields.max_tokens), ("max_completion_tokens", fields.max_completion_tokens)):
        if not isinstance(limit, int) or 1 <= limit <= max_output_tokens:
            continue
        why = (f"this model answers with at most {max_output_tokens} tokens" if limit > max_output_tokens
               else "it must be at least 1")
        raise Refusal(errors.INVALID_VALUE, f"'{param}' is {limit}; {why}", param)


def _check_prompts(asked: Asked, texts: int) -> None:
    """Refuses several prompts where frontends count the tokens of each by itself: one's usage would hide the others'.
    """
    if texts > MAX_PROMPTS:
        raise Refusal(errors.INVALID_VALUE, f"'prompt' has {texts} texts; it may have {MAX_PROMPTS}", "prompt")
    if asked.streamed or (asked.fields.n or 1) > 1:
        raise Refusal(errors.INVALID_VALUE, "several prompts are answered whole, with one choice each: send one prompt "
                      "in each request to stream it or to ask for several choices", "prompt")
