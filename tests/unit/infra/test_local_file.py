"""`local.json`: the fields that programs rely on."""

import json
import os
import stat
from pathlib import Path

import pytest

from control_plane.cli.stack import LocalFile
from infra.local.layout import Layout, Secrets
from infra.local.local_file import LocalFacts, local_facts, write
from infra.local.shape import Shape

SHAPE = Shape(8700, datacenter_count=2, edge_count=2, replica_count=2, engine="sim")
SECRETS = Secrets(postgres_superuser="super", postgres_role="role", valkey="vk", operator_token="oper", api_key="sk")


@pytest.fixture
def facts(tmp_path: Path) -> LocalFacts:
    """What a running stack of two datacenters says."""
    return local_facts(Layout(tmp_path), SHAPE, SECRETS, {"edge-0": 7})


def test_edge_addresses_are_what_an_sdk_takes_as_base_url(facts: LocalFacts) -> None:
    assert facts.edge_url == "http://127.0.0.1:8700/v1"
    assert facts.edge_urls == ["http://127.0.0.1:8700/v1", "http://127.0.0.1:8701/v1"]


def test_control_planes_are_bare_addresses(facts: LocalFacts) -> None:
    assert facts.control_plane_url == "http://127.0.0.1:8710"
    assert facts.control_plane_urls == ["http://127.0.0.1:8710", "http://127.0.0.1:8711"]


def test_datacenters_say_where_their_frontends_are(facts: LocalFacts) -> None:
    assert [(place.id, place.region, place.ingress_url, place.ports.agent) for place in facts.datacenters] == [
        ("us-east-1", "us-east-1", "http://127.0.0.1:8800", 8802),
        ("eu-north-1", "eu-north-1", "http://127.0.0.1:8900", 8902),
    ]


def test_the_process_that_keeps_the_others_is_named_too(facts: LocalFacts) -> None:
    assert facts.pids == {"up": os.getpid(), "edge-0": 7}


def test_a_stopped_stack_has_no_processes(tmp_path: Path) -> None:
    assert local_facts(Layout(tmp_path), SHAPE, SECRETS, {}).pids == {}


def test_the_superuser_password_is_not_in_it(facts: LocalFacts) -> None:
    assert "super" not in facts.model_dump_json()


def test_the_file_is_private_and_what_the_command_line_reads(tmp_path: Path, facts: LocalFacts) -> None:
    layout = Layout(tmp_path)
    write(layout, facts)
    assert stat.S_IMODE(layout.local_file.stat().st_mode) == 0o600
    read = LocalFile.model_validate_json(layout.local_file.read_bytes())
    assert (read.operator_token, read.api_key, read.edge_url) == ("oper", "sk", "http://127.0.0.1:8700/v1")
    assert read.control_plane_urls == facts.control_plane_urls


def test_every_agreed_field_is_there(tmp_path: Path, facts: LocalFacts) -> None:
    write(Layout(tmp_path), facts)
    assert set(json.loads(Layout(tmp_path).local_file.read_text())) == {
        "edge_url", "edge_urls", "control_plane_url", "control_plane_urls", "api_key", "model", "team",
        "operator_token", "database_url", "redis_url", "datacenters", "pids", "port_base",
    }  # fmt: skip
