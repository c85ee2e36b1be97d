"""The models of `meridian status`: what they can hold, and how well they are served, per region and everywhere."""

from collections.abc import Iterable

from rich.text import Text

from control_plane.cli import render
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.operator import ModelStatus, Quality

EVERYWHERE = "all regions"
GOOD_UPTIME, POOR_UPTIME = 99.9, 99.0


def capacity_sheet(models: Iterable[ModelStatus]) -> Sheet:
    """In concurrent requests: what is ready, promised and left, and what is open now."""
    columns = [Column("MODEL"), Column("REGION"), Column("SERVED BY", right=True), Column("READY", right=True),
               Column("PEAK", right=True), Column("RESERVED", right=True), Column("HEADROOM", right=True),
               Column("OPEN", right=True)]
    rows: list[list[Cell]] = [
        [*_name(one), render.share(one.serving, one.holding), render.count(one.ready), render.count(one.peak),
         render.count(one.reserved), _headroom(one.headroom), render.count(one.open_requests)] for one in models]
    return Sheet(columns, rows, "No models yet.")


def quality_sheet(models: Iterable[ModelStatus]) -> Sheet:
    """As edges saw it. What fewer than 100 requests say is not shown."""
    columns = [Column("MODEL"), Column("REGION"), Column("TTFT 50/90/99", right=True), Column("ITL 50/90", right=True),
               Column("UPTIME 5M", right=True), Column("30M", right=True), Column("1D", right=True)]
    rows: list[list[Cell]] = [[*_name(one), *_served(one.quality)] for one in models]
    return Sheet(columns, rows, "No models yet.")


def _name(one: ModelStatus) -> list[Cell]:
    """A model's name once, above its regions."""
    return [one.model, EVERYWHERE] if one.region is None else ["", one.region]


def _served(quality: Quality) -> list[Cell]:
    ttft = "/".join(map(_seconds, (quality.ttft_p50_s, quality.ttft_p90_s, quality.ttft_p99_s)))
    itl = "/".join(map(_milliseconds, (quality.itl_p50_s, quality.itl_p90_s)))
    unit = " ms" if quality.itl_p50_s is not None else ""
    return [ttft + (" s" if quality.ttft_p50_s is not None else ""), itl + unit,
            *map(_uptime, (quality.uptime_5m, quality.uptime_30m, quality.uptime_1d))]


def _seconds(value: float | None) -> str:
    return render.UNOBSERVED if value is None else f"{value:.2g}"


def _milliseconds(value: float | None) -> str:
    return render.UNOBSERVED if value is None else f"{1_000 * value:.0f}"


def _uptime(percent: float | None) -> Text:
    """Cut, never rounded up: 99.999 percent is not 100."""
    if percent is None:
        return Text(render.UNOBSERVED)
    style = render.GOOD if percent >= GOOD_UPTIME else render.BUSY if percent >= POOR_UPTIME else render.BAD
    return Text("100%" if percent >= 100 else f"{int(percent * 100) / 100:.2f}%", style=style)


def _headroom(left: int | None) -> Text:
    return Text(render.count(left), style=render.BAD if left is not None and left < 0 else "")
