"""Open requests by datacenter and by deployment."""

from collections import Counter

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


@given(st.lists(st.sampled_from([("us-east-1", "glm"), ("us-east-1", "qwen"), ("eu-north-1", "glm-eu")]), max_size=50))
def test_deployments_are_counted_each_and_forgotten_at_zero(places: list[tuple[str, str]]) -> None:
    open_requests = OpenRequests()
    for place in places:
        open_requests.enter(*place)
    assert open_requests.by_deployment == Counter(deployment for _, deployment in places)
    for place in places:
        open_requests.leave(*place)
    assert open_requests.by_deployment == {}
