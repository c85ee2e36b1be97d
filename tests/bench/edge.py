"""The edge by itself beside nginx and bare Python relays: what an event, a request, a long prompt and an open stream
cost, and what that makes for the mission's load.

Driven by the bench that lies beside the checkout (`../shared/bench`), so that other gateways can be measured by the
same program. Every relay gets one process and the same mock upstream; they take turns, and ratios are medians of rounds
in which one followed the other at once, for absolute microseconds move by 2 x with whatever else the machine does.
"""

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import thread_time

import msgspec
import uvloop

from edge_api.hot.fields import ChatFields
from tests.bench.edge_relays import EDGE, MAX_CONNECTIONS, NGINX, Relay, edge, relays
from tests.bench.edge_streams import HeldStreams, hold
from tests.bench.harness import Figures, machine, paired_ratio, tree_cpu_s, verdict
from tests.bench.load import Target
from tests.bench.shared_bench import MODEL, SharedBench, mock_upstream, shared_bench

NAME = "edge"
SUMMARY = "one edge alone beside nginx: CPU an event, a request, 600 kB; latency; open streams (--quick: less of it)"
OPTIONS = ("--quick",)

EVENT_LIMIT, UNARY_LIMIT, LONG_LIMIT_US, LATENCY_LIMIT_MS, READS_LIMIT = 1.5, 2.5, 1_800, 0.3, 0.95
GAP_LIMIT_MS, RSS_LIMIT_KB = 250, 60
AGENT_REQUESTS_PER_S, EVENTS_PER_S = 80, 40_000
HELD = ((1_000, 5), (200, 20))  # streams, and events a second of each
ROUNDS = 3
LONG_MESSAGES, LONG_MESSAGE_BYTES = 40, 15_000
MICRO = 1e6

Rounds = dict[str, list[dict[str, float]]]


def main(quick: bool = False) -> Figures:
    """Starts the mock and every relay, loads them in turns, then lets the edge alone hold many streams."""
    shared = shared_bench()
    _allow_files()
    with tempfile.TemporaryDirectory(prefix="meridian-bench-") as name, mock_upstream(shared.place) as upstream_port, \
            relays(Path(name), upstream_port, shared.place) as running:
        rounds = uvloop.run(measure(running, shared, upstream_port, Path(name) / "results.jsonl", quick))
        held = [held_streams(Path(name), upstream_port, streams, per_s, quick) for streams, per_s in HELD]
    print(machine())
    return report(rounds, held, decode_us(long_body()))


async def measure(running: list[Relay], shared: SharedBench, upstream_port: int, out: Path, quick: bool) -> Rounds:
    """All rounds. The bare relays are there for the order of magnitude: one round is enough for them."""
    rounds: Rounds = {relay.name: [] for relay in running}
    for number in range(1 if quick else ROUNDS):
        for relay in running:
            if number == 0 or relay.name in (EDGE, NGINX):
                rounds[relay.name].append(await one_round(relay, shared, upstream_port, out, quick))
    return rounds


def held_streams(place: Path, upstream_port: int, streams: int, per_s: int, quick: bool) -> HeldStreams:
    """Many streams open through an edge that has done nothing yet: memory once taken is not given back."""
    with edge(place / f"edge-{streams}", upstream_port) as fresh:
        return uvloop.run(hold(fresh, upstream_port, streams, per_s, seconds=4 if quick else 10))


async def one_round(relay: Relay, shared: SharedBench, upstream_port: int, out: Path, quick: bool) -> dict[str, float]:
    """Everything about one relay, once. Raises RuntimeError if it does not relay what the upstream said."""
    sizes = {"n": 300, "rounds": 1, "lat_n": 40, "streams": 30, "chunks": 60} if quick else {}
    plain, with_ids = [await shared.run(relay.url, relay.pid, relay.key, upstream_port, out, ids, **sizes)
                       for ids in (False, True)]
    if not plain["text_equal"] or plain["events"] != plain["events_direct"]:
        raise RuntimeError(f"{relay.name}: {plain['events']} events of {plain['events_direct']}")
    return {
        "event_us": plain["cpu_us_chunk"], "event_ids_us": with_ids["cpu_us_chunk"],
        "request_us": median((plain["cpu_us_req"], with_ids["cpu_us_req"])),
        "long_request_us": await long_request_us(relay, 16 if quick else 60),
        "added_p50_ms": median((plain["add_p50_ms"], with_ids["add_p50_ms"])),
        "reads_per_event": plain["reads_per_event"], "rss_mb": with_ids["rss_mb"]}


async def long_request_us(relay: Relay, count: int) -> float:
    """CPU of one request with a prompt of 600 kB, as an agent's later turns have."""
    target = Target(relay.port, MODEL, relay.key)
    messages = {"messages": long_messages()}
    await target.unary(4, 2, **messages)
    before_s = tree_cpu_s(relay.pid)
    await target.unary(count, 2, **messages)
    used_s = tree_cpu_s(relay.pid) - before_s
    target.close()
    return MICRO * used_s / count


def decode_us(body: bytes) -> float:
    """CPU of reading a body once and doing nothing else."""
    decode = msgspec.json.Decoder(ChatFields).decode

    def once() -> float:
        before_s = thread_time()
        decode(body)
        return thread_time() - before_s

    return MICRO * median(once() for _ in range(31))


def long_messages() -> list[dict[str, str]]:
    """A conversation of 600 kB."""
    words = "the quick brown fox says \"no\" to dogs\n" * (LONG_MESSAGE_BYTES // 40)
    return [{"role": ("user", "assistant")[number % 2], "content": f"{number} {words}"}
            for number in range(LONG_MESSAGES + 1)]


def long_body() -> bytes:
    return msgspec.json.encode({"model": MODEL, "messages": long_messages(), "max_tokens": 16})


def report(rounds: Rounds, held: list[HeldStreams], decoded_us: float) -> Figures:
    """Prints the table and every figure beside its yardstick, and returns the figures."""
    middle = {name: {figure: median(values[figure] for values in taken) for figure in taken[0]}
              for name, taken in rounds.items()}
    for line in table(middle):
        print(line)
    ours, figures = middle[EDGE], dict[str, float | int | str | bool]()

    def tell(name: str, value: float, limit: float | None, text: str, at_least: bool = False) -> None:
        judged = "" if limit is None else f", {verdict(value, limit, at_least)}"
        print(f"{text:<58} {value:9,.2f}{judged}")
        figures[name] = round(value, 3)

    if NGINX in rounds:
        for name, key, limit in (("event_x_nginx", "event_us", EVENT_LIMIT),
                                 ("event_ids_x_nginx", "event_ids_us", EVENT_LIMIT),
                                 ("request_x_nginx", "request_us", UNARY_LIMIT)):
            pairs = [(mine[key], theirs[key]) for mine, theirs in zip(rounds[EDGE], rounds[NGINX], strict=True)]
            tell(name, paired_ratio(pairs), limit, f"CPU: {RATIO_TEXT[name]}, x nginx")
    tell("long_request_us", ours["long_request_us"], LONG_LIMIT_US, "CPU us a request with a prompt of 600 kB")
    tell("decode_us", decoded_us, None, "  of that, msgspec decoding it and nothing else")
    tell("added_p50_ms", ours["added_p50_ms"], LATENCY_LIMIT_MS, "added latency ms, p50, one client")
    tell("reads_per_event", ours["reads_per_event"], READS_LIMIT, "reads an event at 20 ms", at_least=True)
    for streams in held:
        what = f"{streams.streams} streams at {streams.per_s}/s"
        tell(f"held_{streams.streams}", streams.whole, streams.streams, f"{what}: ended whole", at_least=True)
        tell(f"gap_ms_{streams.streams}", streams.added_gap_ms, GAP_LIMIT_MS,
             f"{what}: longest gap ms beyond the mock's {streams.direct_gap_ms:.0f}")
        tell(f"rss_kb_{streams.streams}", streams.own_rss_kb, RSS_LIMIT_KB,
             f"{what}: RSS kB a stream beside its body of {streams.body_bytes / 1000:.1f}")
    cores = (AGENT_REQUESTS_PER_S * ours["long_request_us"] + EVENTS_PER_S * ours["event_ids_us"]) / MICRO
    tell("mission_cores", cores, None, "cores for 80 agent requests/s and 40,000 events/s")
    return figures


RATIO_TEXT = {"event_x_nginx": "an event", "event_ids_x_nginx": "an event, nginx relaying token ids, too",
              "request_x_nginx": "a unary request"}
HEADINGS: dict[str, tuple[str, Callable[[float], str]]] = {
    "event_us": ("CPU us an event", "{:.1f}".format),
    "event_ids_us": ("with token ids", "{:.1f}".format),
    "request_us": ("CPU us a request", "{:.1f}".format),
    "long_request_us": ("CPU us a 600 kB request", "{:,.0f}".format),
    "added_p50_ms": ("added p50 ms", "{:.2f}".format),
    "reads_per_event": ("reads an event", "{:.2f}".format),
    "rss_mb": ("RSS MB", "{:.0f}".format),
}


def table(middle: dict[str, dict[str, float]]) -> list[str]:
    """The relays side by side, as Markdown; CPU figures with their ratio to nginx."""
    yardstick = middle.get(NGINX)

    def cell(figure: str, value: float) -> str:
        text = HEADINGS[figure][1](value)
        return f"{text} ({value / yardstick[figure]:.2f} x)" if yardstick and figure.endswith("_us") else text

    heads = ["relay", *(heading for heading, _ in HEADINGS.values())]
    return [f"| {' | '.join(heads)} |", f"|---{'|--:' * len(HEADINGS)}|",
            *(f"| {' | '.join([name, *(cell(figure, values[figure]) for figure in HEADINGS)])} |"
              for name, values in middle.items())]


def _allow_files() -> None:
    """Thousands of connections in this process, the mock and each relay."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, 2 * MAX_CONNECTIONS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
