"""Whether a broken stream may go on in another datacenter, and how: the table of docs/protocols/resume.md as code.

Pure: the request, what of its answer the client has, what is known of the two engines.
"""

from enum import StrEnum

from control_plane.contracts.deployment import EngineFacts
from edge_api.resume.demand import Demand, Unreadable
from edge_api.resume.journal import Reasoning, Seam


class Verdict(StrEnum):
    """How a stream goes on, or why it does not.

    `RESEND`: nothing was delivered, so the request is sent as it was, to whatever engine. `CONTINUE`: from the
    delivered ids. `CONSTRAIN`: the same, with what is left of its grammar. `REPLAY`: from before a call of which the
    client has a part; that part is muted. `FORCE`: from a little before the end, for a stop string may have been held
    back there; what the client has of it is forced by a grammar, and muted. `COMPLETE`: its token limit is reached.
    """

    RESEND = "resend"
    CONTINUE = "continue"
    CONSTRAIN = "constrain"
    REPLAY = "replay"
    FORCE = "force"
    COMPLETE = "complete"
    OTHER_ENGINE = "other_engine"
    NO_TOKEN_IDS = "no_token_ids"  # noqa: S105
    TEXT_HELD_BACK = "text_held_back"
    SEVERAL_CHOICES = "several_choices"
    BEAM_SEARCH = "beam_search"
    ECHO = "echo"
    PROMPT_LOGPROBS = "prompt_logprobs"
    STRICT_SEED = "strict_seed"
    PENALTY = "penalty"
    MEDIA = "media"
    OWN_REASONING = "own_reasoning"
    SAMPLED_CALL = "sampled_call"
    SAMPLED_STOP = "sampled_stop"
    RAW_CALL = "raw_call"
    NO_GRAMMAR = "no_grammar"
    UNREADABLE = "unreadable"


GOES_ON = frozenset({Verdict.RESEND, Verdict.CONTINUE, Verdict.CONSTRAIN, Verdict.REPLAY, Verdict.FORCE,
                     Verdict.COMPLETE})


def judge(demand: Demand, seam: Seam | None, here: EngineFacts, there: EngineFacts,
          strict_seed: bool = False) -> Verdict:
    """What becomes of a stream that broke at `seam` in an engine `here`, if it may go on `there`. `seam` is none if
    nobody can say which ids the client has the text of."""
    if seam is not None and not seam.had_text:
        return Verdict.RESEND
    if not here.identity or here.identity != there.identity:
        return Verdict.OTHER_ENGINE
    if seam is None:
        return Verdict.TEXT_HELD_BACK
    try:
        refused = _refused(demand, strict_seed)
        if refused is not None:
            return refused
        return _way(demand, seam, there)
    except Unreadable:
        return Verdict.UNREADABLE


def _refused(demand: Demand, strict_seed: bool) -> Verdict | None:
    """What no continuation could do justice to."""
    if (demand.n or 1) > 1 or (demand.best_of or 1) > 1 or demand.has_several_prompts():
        return Verdict.SEVERAL_CHOICES
    if demand.use_beam_search:
        return Verdict.BEAM_SEARCH
    if demand.echo or demand.suffix:
        return Verdict.ECHO
    if demand.prompt_logprobs is not None:
        return Verdict.PROMPT_LOGPROBS
    if strict_seed and demand.is_sampled:
        return Verdict.STRICT_SEED
    if demand.frequency_penalty or demand.presence_penalty:
        return Verdict.PENALTY
    if demand.prompt_embeds or demand.has_media():
        return Verdict.MEDIA
    return None


def _way(demand: Demand, seam: Seam, there: EngineFacts) -> Verdict:
    if not seam.was_counted:
        return Verdict.NO_TOKEN_IDS
    if seam.reasoning is Reasoning.OPENED:
        return Verdict.OWN_REASONING
    if seam.half_call is not None:  # a sampled engine would hardly write the same call again
        return Verdict.SAMPLED_CALL if demand.is_sampled else Verdict.REPLAY
    if demand.limit is not None and seam.tokens >= demand.limit:
        return Verdict.COMPLETE
    is_constrained = demand.constraint() is not None
    if any(seam.repeat) and demand.is_sampled:
        if is_constrained or demand.has_tools or seam.repeat.reasoning:
            return Verdict.SAMPLED_STOP
        return Verdict.FORCE if there.grammar_url else Verdict.NO_GRAMMAR
    if seam.text and is_constrained:
        return Verdict.CONSTRAIN if there.grammar_url else Verdict.NO_GRAMMAR
    if demand.must_call and not there.tool_parser:
        return Verdict.RAW_CALL
    return Verdict.CONTINUE
