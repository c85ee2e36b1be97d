"""Every list of the API is paged: read from the app's own routes."""

from collections.abc import Iterator
from typing import get_origin

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from control_plane.app import ROUTERS
from control_plane.contracts.operator import Page


def unpaged(route: APIRoute) -> bool:
    """Whether a route answers a bare list, or a page that nobody can turn."""
    answer = route.response_model
    if get_origin(answer) in (list, tuple, set):
        return True
    if not (isinstance(answer, type) and issubclass(answer, Page)):
        return False
    return not {"limit", "cursor"} <= set(query_names(route.dependant))


def query_names(dependant: Dependant) -> Iterator[str]:
    yield from (parameter.name for parameter in dependant.query_params)
    for inner in dependant.dependencies:
        yield from query_names(inner)


def routes() -> Iterator[APIRoute]:
    return (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))


def test_no_route_answers_a_list_without_pages() -> None:
    assert [route.path for route in routes() if unpaged(route)] == []
    assert sum(isinstance(route.response_model, type) and issubclass(route.response_model, Page)
               for route in routes()) >= 7


def test_a_bare_list_and_a_page_that_cannot_be_turned_are_found() -> None:
    router = APIRouter()

    @router.get("/bare")
    async def bare() -> list[str]:
        return []

    @router.get("/stuck")
    async def stuck() -> Page[str]:
        return Page[str](data=[])

    assert [unpaged(route) for route in router.routes if isinstance(route, APIRoute)] == [True, True]
