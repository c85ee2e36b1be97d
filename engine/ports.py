"""Which port of a fleet's block each worker has. A worker keeps its port for as long as the fleet remembers its name.

Ports are remembered rather than computed: a worker whose port moved because another deployment came or went would have
to be restarted for nothing.
"""

WORKER_PORTS_FROM = 10
PORTS_IN_BLOCK = 100
WORKER_PORTS = PORTS_IN_BLOCK - WORKER_PORTS_FROM
MAX_PORT = 32_767  # Dynamo 1.6 reads DYN_SYSTEM_PORT as a signed 16-bit number: a worker with a higher one dies at once


class OutOfPorts(Exception):
    """The block has no room for the workers: too small for so many, or too high for any."""


def assign(names: list[str], known: dict[str, int], port_base: int) -> dict[str, int]:
    """The port of each name, those of former workers included, the longest unused first.

    A former worker keeps its port while there are free ones: it may still be finishing its requests.

    Raises:
        OutOfPorts: there are more names than ports, or the block lies where workers cannot listen.
    """
    if names and port_base + PORTS_IN_BLOCK - 1 > MAX_PORT:
        raise OutOfPorts(f"the ports from {port_base} on are too high: the last of {PORTS_IN_BLOCK} may be {MAX_PORT}")
    if len(names) > WORKER_PORTS:
        raise OutOfPorts(f"the fleet has {len(names)} workers and ports for {WORKER_PORTS}")
    block = range(port_base + WORKER_PORTS_FROM, port_base + PORTS_IN_BLOCK)
    current = {name: port for name, port in known.items() if name in names and port in block}
    former = {name: port for name, port in known.items() if name not in names and port in block}
    free = [port for port in block if port not in {*current.values(), *former.values()}]
    for name in names:
        if name in current:
            continue
        if not free:
            free.append(former.pop(next(iter(former))))
        current[name] = free.pop(0)
    return former | current
