"""`prometheus.yml` of a local stack: what to scrape on this machine, with Meridian's rules. `prometheus
--config.file=STATE/prometheus.yml` is all that it takes; the stack itself starts no Prometheus."""

import json
from pathlib import Path
from typing import Any

from infra.local.ports import HOST
from infra.local.shape import Shape

RULES = Path(__file__).parent / "rules"
EVERY = "5s"


def configuration(shape: Shape) -> str:
    """The file's text: JSON, which is YAML, too. The jobs are those that the rules know."""
    ports, places = shape.ports, range(shape.datacenter_count)
    jobs = {
        "meridian-edge": [ports.edge(index) for index in range(shape.edge_count)],
        "meridian-control-plane": [ports.control_plane(index) for index in range(shape.replica_count)],
        "meridian-worker": [ports.worker],
        "meridian-agent": [ports.agent(index) for index in places],
        "dynamo-frontend": [ports.datacenter(index) for index in places],
    }
    return json.dumps({
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(RULES / "*.yml")],
        "scrape_configs": [_job(name, wanted) for name, wanted in jobs.items()]}, indent=2) + "\n"


def _job(name: str, ports: list[int]) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": [f"{HOST}:{port}" for port in ports]}]}
