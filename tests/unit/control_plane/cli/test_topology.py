"""The topology document: applied from a file or from standard input, and shown."""

import io
import json

import pytest

from control_plane.contracts.topology import TopologyDocument
from tests.unit.control_plane.cli.conftest import Meridian
from tests.unit.control_plane.cli.servers import OperatorServer

DOCUMENT = {
    "regions": [{"id": "us-east-1"}],
    "datacenters": [{"id": "us-east-1", "region": "us-east-1"}],
    "fleets": [{"id": "us-east-1-a", "datacenter": "us-east-1", "ingress_url": "http://127.0.0.1:8800",
                "gpu_type": "sim", "gpu_total": 3}],
    "models": [{"id": "sim/glm-5.3", "display_name": "GLM-5.3 (simulated)", "owned_by": "meridian",
                "context_window": 202_752, "max_output_tokens": 131_072,
                "price": {"version": "pv_1", "input_usd": "0.0000006", "cached_input_usd": "0.00000011",
                          "output_usd": "0.0000022"}}],
    "deployments": [{"id": "us-east-1-a-glm", "model": "sim/glm-5.3", "fleet": "us-east-1-a", "engine": {},
                     "pools": [{"role": "prefill", "replicas": 1}, {"role": "decode", "replicas": 2}]}],
}


def written(meridian: Meridian, text: str) -> str:
    path = meridian.state / "topology.json"
    path.write_text(text)
    return str(path)


def test_a_document_is_applied_as_a_whole(meridian: Meridian, api: OperatorServer) -> None:
    ran = meridian("topology", "apply", "-f", written(meridian, json.dumps(DOCUMENT)))
    assert ran.code == 0
    assert api.topology == TopologyDocument.model_validate(DOCUMENT)


def test_a_document_may_come_from_standard_input(meridian: Meridian, api: OperatorServer,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(DOCUMENT)))
    assert meridian("topology", "apply", "-f", "-").code == 0
    assert len(api.topology.deployments) == 1


def test_what_is_shown_in_json_can_be_applied_again(meridian: Meridian, api: OperatorServer) -> None:
    api.topology = TopologyDocument.model_validate(DOCUMENT)
    shown = meridian("topology", "show", "-o", "json").out
    assert meridian("topology", "apply", "-f", written(meridian, shown)).code == 0
    assert api.topology == TopologyDocument.model_validate(DOCUMENT)


def test_the_tables_name_everything_and_fit(meridian: Meridian, api: OperatorServer) -> None:
    api.topology = TopologyDocument.model_validate(DOCUMENT)
    out = meridian("topology", "show").out
    assert [name for name in ("us-east-1-a-glm", "GLM-5.3 (simulated)", "3 × sim", "1 prefill, 2 decode")  # noqa: RUF001
            if name not in out] == []
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_file_that_is_not_there_is_a_usage_error(meridian: Meridian) -> None:
    ran = meridian("topology", "apply", "-f", "nowhere.json")
    assert (ran.code, ran.err) == (2, "error: cannot read nowhere.json: No such file or directory\n")


@pytest.mark.parametrize(("text", "said"), [
    ("{", "the document: Invalid JSON"), ('{"regoins": []}', "regoins: Extra inputs are not permitted"),
    ('{"regions": [{"id": "US"}]}', "regions.0.id: String should match pattern"),
    ('{"regions": [{"id": "US"}, {}]}', "(and 1 more fault"),
])
def test_a_faulty_document_names_the_fault_and_is_not_sent(meridian: Meridian, api: OperatorServer, text: str,
                                                           said: str) -> None:
    ran = meridian("topology", "apply", "-f", written(meridian, text))
    assert ran.code == 2
    assert said in ran.err
    assert api.calls == []


def test_a_file_that_is_no_text_is_a_usage_error(meridian: Meridian) -> None:
    path = meridian.state / "binary"
    path.write_bytes(b"\xff\xfe")
    assert meridian("topology", "apply", "-f", str(path)).code == 2
