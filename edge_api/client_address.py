"""Whom a request comes from, and how many unknown keys such a client may ask for."""

from collections import OrderedDict
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from control_plane.contracts.clock import Clock

UNKNOWN_BURST = 20.0
UNKNOWN_PER_S = 1.0
MAX_ADDRESSES = 10_000

Network = IPv4Network | IPv6Network


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The address of the client behind the proxies of ours. `peer` is who holds the connection, `forwarded_for` its
    `X-Forwarded-For`, to which each proxy appends whom it was asked by.

    It is read from the right and only as far as those whom we trust wrote it: the last address that is no trusted
    proxy's is the client's, and whatever stands left of that the client may have made up. An address that is none ends
    the search at the proxy that passed it on.
    """
    if not trusted or not forwarded_for:
        return peer
    address = peer
    for hop in reversed(forwarded_for.split(",")):
        if not _is_trusted(address, trusted):
            break
        try:
            address = str(ip_address(_bare(hop)))
        except ValueError:
            break
    return address


class UnknownKeyLimit:
    """How many unknown keys a client address may ask for: a bucket each, of at most `MAX_ADDRESSES` addresses. The
    addresses of one IPv6 network of 64 bits share a bucket: whoever has one of them has them all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Takes one look-up, if there is one left."""
        address = _network(address)
        left = self._left(address)
        if left < 1:
            return False
        self._put(address, left - 1)
        return True

    def give_back(self, address: str) -> None:
        """The key was known after all, or nobody answered."""
        address = _network(address)
        self._put(address, min(self._left(address) + 1, UNKNOWN_BURST))

    def _left(self, address: str) -> float:
        left, since_s = self._buckets.get(address, (UNKNOWN_BURST, 0.0))
        return min(UNKNOWN_BURST, left + UNKNOWN_PER_S * (self._clock.monotonic_s() - since_s))

    def _put(self, address: str, left: float) -> None:
        self._buckets[address] = (left, self._clock.monotonic_s())
        self._buckets.move_to_end(address)
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)


def _network(address: str) -> str:
    """What stands for the address in the limit."""
    if ":" not in address:
        return address
    six = IPv6Address(address)
    return str(six.ipv4_mapped or IPv6Network((int(six) >> 64 << 64, 64)))


def _bare(hop: str) -> str:
    """The address without brackets and port, which some proxies write."""
    hop = hop.strip()
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:  # a Unix socket has no address
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = IPv4Address(parsed.ipv4_mapped)
    return any(parsed in network for network in trusted)
