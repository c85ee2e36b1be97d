"""Pages and cursors."""

from control_plane import paging
from control_plane.paging import Asked


def test_a_list_that_fits_has_no_next_page() -> None:
    page = paging.page(["a", "b"], Asked(limit=2), key=str)
    assert (page.data, page.next_cursor) == (["a", "b"], None)


def test_one_item_too_many_is_not_shown_and_gives_the_cursor_of_the_last_shown() -> None:
    page = paging.page(["a", "b", "c"], Asked(limit=2), key=str.upper)
    assert (page.data, page.next_cursor) == (["a", "b"], "B")


def test_an_empty_list_is_one_empty_page() -> None:
    page = paging.page([], Asked(), key=str)
    assert (page.data, page.next_cursor) == ([], None)
