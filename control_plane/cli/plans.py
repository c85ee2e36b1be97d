"""An operation's plan in words: what is touched, what is done, and what then remains for each model."""

from rich.text import Text

from control_plane.cli import render
from control_plane.cli.steps import in_words
from control_plane.contracts.operations import Headroom, OperationPlan


def plan_lines(plan: OperationPlan, forced: bool) -> list[Text]:
    """A plan as people read it before they say yes."""
    state = f"  (now {plan.traffic_state})" if plan.traffic_state else ""
    lines = [Text.assemble(("Plan: ", "bold"), (f"{plan.kind} {plan.subject}", "bold"), (state, render.QUIET))]
    if plan.datacenter:
        lines.append(Text(f"  {_there(plan)}"))
    for model in plan.models:
        lines += _model_lines(plan, model)
    lines += [Text(f"  {place}  {change.before_percent:g}% of its requests, then {change.after_percent:g}%")
              for place, change in plan.traffic.items()]
    lines += [Text(f"  warning: {warning}", style=render.BUSY) for warning in plan.warnings]
    if forced:
        lines.append(Text("  forced: the safety rules are overruled", style=render.BAD))
    lines += [_step_line(plan, number, step) for number, step in enumerate(plan.steps, 1)]
    if not plan.steps and not plan.refusal:
        lines.append(Text("  nothing to do", style=render.QUIET))
    return lines


def _there(plan: OperationPlan) -> str:
    """What is there now; a dash is what nobody reported."""
    if plan.open_requests is None:
        return "open requests  not reported"
    told = [f"open requests  {render.count(plan.open_requests)}"]
    told += [f"{render.count(count)} {noun}" for count, noun in (
        (plan.open_streams, "of them streams"), (plan.sessions, "sessions")) if count is not None]
    return ", ".join(told)


def _model_lines(plan: OperationPlan, model: str) -> list[Text]:
    remaining = plan.remaining_datacenters.get(model, [])
    places = Text(", ".join(remaining) or "nothing", style=render.GOOD if remaining else render.BAD)
    lines = [Text.assemble(f"  {model}  then served by ", places)]
    if (after := plan.after.get(model)) is not None:
        lines.append(Text(f"    holds {_holds(after)}", style="" if (after.headroom or 0) >= 0 else render.BAD))
    if at_risk := plan.reserved_at_risk.get(model):
        lines.append(Text(f"    {at_risk:,} reserved units are at risk", style=render.BAD))
    return lines


def _holds(after: Headroom) -> str:
    if after.ready is None:
        return (f"{render.UNOBSERVED} requests at once: nobody declared or reported it; "
                f"peak {render.count(after.peak)}, reserved {after.reserved:,}")
    return (f"{after.ready:,} requests at once then; peak {render.count(after.peak)}, reserved {after.reserved:,}, "
            f"headroom {render.count(after.headroom)}")


def _step_line(plan: OperationPlan, number: int, step: str) -> Text:
    expected_s = plan.expected_s.get(step.partition(" ")[0])
    about = f"  about {render.span(expected_s)}" if expected_s else ""
    return Text.assemble(f"  {number}. {in_words(step)}", (about, render.QUIET))
