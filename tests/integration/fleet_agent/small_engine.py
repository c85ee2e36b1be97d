"""A small engine of real processes: `plan` answers like `python -m engine plan`, `serve` is one of its processes.

A fleet is a bus, the replicas of each pool, and a frontend whose /metrics shows what `figures.json` in the state
directory says; it answers every POST with one token. A replica that finds `NAME.break` there ends at once; `engine` in
the specification may hold `stop_delay_s` (how long SIGTERM takes), `orphan` (leave a child behind), `revision` and
`refuse`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> int:
    if sys.argv[1:] == ["plan"]:
        return plan(json.load(sys.stdin))
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--stop-delay-s", type=float, default=0.0)
    parser.add_argument("--orphan", action="store_true")
    parser.add_argument("--revision", default="")
    serve(parser.parse_args())
    return 0


def plan(request: dict) -> int:
    for deployment in request["deployments"]:
        if "refuse" in deployment["engine"]:
            refusal = {"deployment_id": deployment["deployment_id"], "error": deployment["engine"]["refuse"]}
            sys.stdout.write(json.dumps(refusal))
            return 2
    base, state_dir = request["port_base"], request["state_dir"]
    processes = []
    if request["deployments"]:
        processes.append(process("bus", base + 1, state_dir))
    for number, deployment in enumerate(request["deployments"]):
        for at, pool in enumerate(deployment["pools"]):
            processes += [
                process(f"{deployment['deployment_id']}-{pool['role']}-{replica}", base + 10 + 20 * number + 5 * at
                        + replica, state_dir, deployment, pool["role"])
                for replica in range(pool["replicas"])]
    if request["deployments"]:
        processes.append(process("frontend", base, state_dir))
    url = f"http://127.0.0.1:{base}"
    gauges = {"url": f"{url}/metrics", "model_ready": "ready", "inflight": "inflight", "queued": "queued"}
    sys.stdout.write(json.dumps({"ingress_url": url, "processes": processes, "gauges": gauges}))
    return 0


def process(name: str, port: int, state_dir: str, deployment: dict | None = None, role: str = "") -> dict:
    engine = deployment["engine"] if deployment else {}
    argv = [sys.executable, "-I", "-S", __file__, "serve", "--name", name, "--port", str(port), "--state-dir",
            state_dir, "--stop-delay-s", str(engine.get("stop_delay_s", 0)), "--revision", engine.get("revision", "")]
    if engine.get("orphan"):
        argv.append("--orphan")
    return {
        "name": name, "digest": "|".join(argv), "argv": argv, "env": {"SMALL_ENGINE": name},
        "log_path": f"{state_dir}/logs/{name}.log", "deployment_id": deployment["deployment_id"] if deployment else "",
        "role": role, "ready_url": f"http://127.0.0.1:{port}/live",
        "start_after": [] if name == "bus" else ["bus"], "stop_grace_s": engine.get("stop_grace_s", 5.0),
    }


def serve(arguments: argparse.Namespace) -> None:
    note(arguments, "start")
    if (arguments.state_dir / f"{arguments.name}.break").exists():
        sys.exit("told to break")
    if arguments.orphan:
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), handler(arguments))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    caught = signal.sigwait({signal.SIGTERM})
    note(arguments, f"{signal.Signals(caught).name}")
    time.sleep(arguments.stop_delay_s)
    note(arguments, "end")


def handler(arguments: argparse.Namespace) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"ok"
            if self.path == "/metrics":
                body = page(json.loads((arguments.state_dir / "figures.json").read_text())).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            """A completion of one token, unless the state directory has a file `mute`."""
            self.rfile.read(int(self.headers["content-length"]))
            is_mute = (arguments.state_dir / "mute").exists()
            body = b"no worker" if is_mute else b'{"usage": {"completion_tokens": 1}}'
            self.send_response(500 if is_mute else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return Handler


def page(figures: dict) -> str:
    return "".join(f'{name}{{model="{model}"}} {value}\n' for model, gauges in figures.items()
                   for name, value in gauges.items())


def note(arguments: argparse.Namespace, what: str) -> None:
    """One line in the journal that tests read: time, name, pid, event."""
    line = f"{time.monotonic():.3f} {arguments.name} {os.getpid()} {what}\n"
    with (arguments.state_dir / "journal").open("a") as journal:
        journal.write(line)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
