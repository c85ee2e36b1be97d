"""Turns deployment specifications into the processes of one Dynamo cluster; pure.

A cluster is a NATS server (KV events), the workers and a frontend. They start in that order and stop in the opposite
one, so that a cluster that is stopped takes no new request while the open ones finish. Every listener is on loopback:
NATS carries events because Dynamo's ZMQ sockets bind to every address whatever they are told.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from control_plane.contracts.deployment import PoolRole
from control_plane.contracts.launch import LaunchPlan, LaunchProcess
from engine import metrics
from engine.facts import facts
from engine.spec import DeploymentSpec, RouterMode, RouterSpec, ScriptEngine, SimEngine, SpecRefused

NATS, FRONTEND, GRAMMAR = "nats", "frontend", "grammar"
WITNESS = "witness"
NATS_PORT, NATS_MONITOR_PORT, GRAMMAR_PORT = 1, 3, 5
KILL_MARGIN_S = 5.0
STRICT_TOOLS = {"scope": "always", "schema": "strict"}
MODES = {PoolRole.PREFILL: "prefill", PoolRole.DECODE: "decode", PoolRole.AGGREGATED: "agg"}


@dataclass(frozen=True)
class Site:
    """Where a cluster runs. `release` names the installed Dynamo: another one replaces every process. `has_grammar`:
    what the grammar service needs is installed."""

    state_dir: Path
    host: str
    port_base: int
    python: Path
    nats_server: Path
    release: str
    has_grammar: bool = False

    def url(self, offset: int, scheme: str = "http") -> str:
        return f"{scheme}://{self.host}:{self.port_base + offset}"


def worker_names(specs: list[DeploymentSpec]) -> list[str]:
    """The names of all workers that the specifications ask for."""
    return [name for spec in specs for name, _ in _replicas(spec)]


def build(site: Site, specs: list[DeploymentSpec], model_dirs: dict[str, Path], ports: dict[str, int]) -> LaunchPlan:
    """The launch plan; `model_dirs` is by deployment id, `ports` by worker name. No deployments, no processes.

    Raises:
        SpecRefused: the deployments cannot share one cluster.
    """
    _check_together(specs)
    processes: list[LaunchProcess] = []
    if specs:
        workers = [
            _worker(site, spec, name, role, model_dirs[spec.deployment_id], ports[name])
            for spec in specs for name, role in _replicas(spec)
        ]
        grace_s = max(spec.engine.stop_grace_s for spec in specs)
        grammar = [_grammar(site)] if site.has_grammar else []
        processes = [_nats(site), *workers, *grammar, _frontend(site, specs[0].engine.router, grace_s)]
    grammar_url = site.url(GRAMMAR_PORT) if site.has_grammar else None
    found = {spec.deployment_id: facts(spec, model_dirs[spec.deployment_id], grammar_url) for spec in specs}
    return LaunchPlan(
        ingress_url=site.url(0), processes=processes, gauges=metrics.gauges(site.url(0)), facts=found)


def _check_together(specs: list[DeploymentSpec]) -> None:
    seen: set[str] = set()
    for spec in specs:
        if spec.deployment_id in seen:
            raise SpecRefused(spec.deployment_id, "deployment_id: named twice in one fleet")
        seen.add(spec.deployment_id)
        if spec.engine.router != specs[0].engine.router:
            raise SpecRefused(spec.deployment_id, "engine.router: differs from that of deployment "
                              f"{specs[0].deployment_id}, with which it shares a frontend")


def _replicas(spec: DeploymentSpec) -> list[tuple[str, PoolRole]]:
    return [
        (f"{spec.deployment_id}-{pool.role}-{at}", pool.role)
        for pool in spec.pools for at in range(pool.replicas)
    ]


def _nats(site: Site) -> LaunchProcess:
    argv = [
        str(site.nats_server), "--addr", site.host, "--port", str(site.port_base + NATS_PORT),
        "--http_port", str(site.port_base + NATS_MONITOR_PORT),
    ]
    return _process(site, NATS, argv, {}, ready_url=f"{site.url(NATS_MONITOR_PORT)}/healthz",
                    stop_grace_s=KILL_MARGIN_S)


def _worker(site: Site, spec: DeploymentSpec, name: str, role: PoolRole, model_dir: Path, port: int) -> LaunchProcess:
    engine = spec.engine
    argv = [
        str(site.python), "-I", "-m", "engine.awake", *_program(engine),
        "--model-path", str(model_dir),
        "--model-name", spec.model.id,
        "--max-model-len", str(spec.model.context_window),
        *(["--disaggregation-mode", MODES[role]] if isinstance(engine, SimEngine) else []),
    ]
    env = _dynamo_environment(site, engine.stop_grace_s) | {
        # A namespace for each deployment: workers of one namespace must have equal model cards.
        "DYN_NAMESPACE": spec.deployment_id.replace(".", "_"),
        "DYN_SYSTEM_PORT": str(port),
        # Without it the status server says "notready" for ever.
        "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        # Small pools: a simulated GPU needs little of the real CPU.
        "DYN_RUNTIME_NUM_WORKER_THREADS": "2",
        "DYN_RUNTIME_MAX_BLOCKING_THREADS": "8",
        "DYN_COMPUTE_THREADS": "0",
    }
    has_caches = isinstance(engine, SimEngine) and role is not PoolRole.PREFILL
    return _process(site, name, argv, env, deployment_id=spec.deployment_id, role=role, start_after=[NATS],
                    ready_url=f"http://{site.host}:{port}/live", stop_grace_s=engine.stop_grace_s + KILL_MARGIN_S,
                    caches_url=f"http://{site.host}:{port}/metrics" if has_caches else "")


def _program(engine: SimEngine | ScriptEngine) -> list[str]:
    """The worker's module and the options that only it has."""
    if isinstance(engine, ScriptEngine):
        strict = ["--structural-tag", json.dumps(STRICT_TOOLS)] if engine.strict_tools else []
        return ["engine.script.worker", "--tool-call-parser", engine.tool_parser,
                "--reasoning-parser", engine.reasoning_parser, *strict]
    return [
        "dynamo.mocker",
        "--block-size", str(engine.cache.block_size),
        "--num-gpu-blocks-override", str(engine.cache.blocks_per_replica),
        "--speedup-ratio", str(engine.timing.speedup_ratio),
        "--decode-speedup-ratio", str(engine.timing.decode_speedup_ratio),
    ]


def _frontend(site: Site, router: RouterSpec, grace_s: int) -> LaunchProcess:
    argv = [
        str(site.python), "-I", "-m", "dynamo.frontend",
        "--http-host", site.host, "--http-port", str(site.port_base),
        "--router-mode", "kv" if router.mode is RouterMode.KV else "round-robin",
        "--migration-limit", str(router.migration_limit),
    ]
    if router.session_affinity_ttl_s:
        # Soft: with the default, hard, a session whose worker died gets errors until that worker's lease expires, and
        # its open streams are not migrated.
        argv += ["--router-session-affinity-ttl-secs", str(router.session_affinity_ttl_s),
                 "--router-session-affinity-mode", "soft"]
    env = _dynamo_environment(site, grace_s) | {
        # Text leaves with its token ids. The newer parsers hold it back by a word: a cut would repeat or lose it.
        "DYN_PARSER_VERSION": "1",
        "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": str(grace_s),
        # The witness: numbered gzip segments of one JSON line a request. A request that also has `x-dynamo-session-id`
        # is under its `x-request-id` there.
        "DYN_REQUEST_TRACE": "1",
        "DYN_REQUEST_TRACE_SINKS": "file",
        "DYN_REQUEST_TRACE_FILE_FORMAT": "jsonl_gz",
        "DYN_REQUEST_TRACE_FILE_PATH": str(site.state_dir / WITNESS / "requests"),
        "DYN_REQUEST_TRACE_FILE_FLUSH_INTERVAL_MS": "250",
        "DYN_REQUEST_TRACE_FILE_ROLL_BYTES": str(4 * 1024 * 1024),
    }
    return _process(site, FRONTEND, argv, env, start_after=[NATS], ready_url=f"{site.url(0)}/live",
                    stop_grace_s=grace_s + KILL_MARGIN_S)


def _grammar(site: Site) -> LaunchProcess:
    argv = [str(site.python), "-I", "-m", "engine.grammar", "--host", site.host,
            "--port", str(site.port_base + GRAMMAR_PORT)]
    return _process(site, GRAMMAR, argv, {}, ready_url=f"{site.url(GRAMMAR_PORT)}/healthz",
                    stop_grace_s=KILL_MARGIN_S)


def _dynamo_environment(site: Site, grace_s: int) -> dict[str, str]:
    """What every Dynamo process of a cluster needs to know."""
    hosts = dict.fromkeys((
        "DYN_HTTP_HOST", "DYN_TCP_RPC_HOST", "DYN_HTTP_RPC_HOST", "DYN_EVENT_PLANE_HOST",
        "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_SYSTEM_HOST"), site.host)
    return hosts | {
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(site.state_dir / "discovery"),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "nats",
        "NATS_SERVER": site.url(NATS_PORT, "nats"),
        "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": str(grace_s),
        # Nothing for a refused request: nobody may fill the disk for free. Dynamo does not let its two lines for each
        # routed request be switched off (1.2 kB in the frontend's log).
        "DYN_LOG": "warn,dynamo_llm::http::service=off,tower_http=off",
        "DYN_LOGGING_JSONL": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _process(site: Site, name: str, argv: list[str], env: dict[str, str], *, ready_url: str, stop_grace_s: float,
             deployment_id: str = "", role: str = "", start_after: list[str] | None = None,
             caches_url: str = "") -> LaunchProcess:
    env = env | {
        # Dynamo caches model cards under the home directory.
        "HOME": str(site.state_dir / "home"),
        "XDG_CACHE_HOME": str(site.state_dir / "home" / ".cache"),
        "LANG": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
    }
    identity = json.dumps([site.release, argv, sorted(env.items())]).encode()
    return LaunchProcess(
        name=name, digest=hashlib.sha256(identity).hexdigest()[:16], argv=argv, env=env,
        log_path=site.state_dir / "logs" / f"{name}.log", deployment_id=deployment_id, role=role, ready_url=ready_url,
        caches_url=caches_url,
        start_after=start_after or [], stop_grace_s=stop_grace_s)
