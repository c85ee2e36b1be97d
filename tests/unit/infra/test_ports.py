"""Which port is whose, and what is said of a taken one."""

import socket

import pytest

from infra.local import processes
from infra.local.errors import StackRefused
from infra.local.ports import HOST, Ports, free_port, is_free, require_free
from infra.local.shape import Shape


def test_every_port_follows_from_the_base() -> None:
    ports = Ports(8700)
    assert (ports.edge(0), ports.edge(1)) == (8700, 8701)
    assert (ports.control_plane(0), ports.control_plane(2)) == (8710, 8712)
    assert (ports.postgres, ports.valkey, ports.worker) == (8720, 8721, 8722)
    assert (ports.datacenter(0), ports.datacenter(1)) == (8800, 8900)
    assert (ports.agent(0), ports.agent(1)) == (8802, 8902)


def test_no_two_parts_of_the_largest_stack_share_a_port() -> None:
    shape = Shape(8700, datacenter_count=9, edge_count=10, replica_count=10, engine="sim")
    parts = 3 + 10 + 10 + 9 * (len(shape.ports.engine(0)) + 1)
    assert len(processes.ports_in_use(shape)) == parts


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        assert not is_free(listener.getsockname()[1])


def test_a_free_port_is_free() -> None:
    assert is_free(free_port())


def test_taken_ports_are_refused_with_number_purpose_and_remedy() -> None:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(StackRefused) as refusal:
            require_free({port: "edge 0", free_port(): "Valkey"})
    assert f"{port} (edge 0)" in str(refusal.value)
    assert "--port-base" in str(refusal.value)
    assert "Valkey" not in str(refusal.value)


def test_free_ports_are_no_reason_to_refuse() -> None:
    require_free({free_port(): "edge 0"})
