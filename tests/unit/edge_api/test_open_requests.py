"""Open requests by datacenter."""


from hypothesis import given
from hypothesis import strategies as st

from edge_api.open_requests import OpenRequests


@given(st.lists(st.sampled_from(["us-east-1", "eu-north-1"]), max_size=50))
def test_open_requests_return_to_zero_and_stay_listed(datacenters: list[str]) -> None:
    open_requests = OpenRequests()
    for datacenter in datacenters:
        open_requests.enter(datacenter)
    assert sum(open_requests.counts().values()) == len(datacenters)
    for datacenter in datacenters:
        open_requests.leave(datacenter)
    assert open_requests.counts() == dict.fromkeys(datacenters, 0)


def test_counts_are_a_copy() -> None:
    open_requests = OpenRequests()
    open_requests.counts()["us-east-1"] = 9
    assert open_requests.counts() == {}
