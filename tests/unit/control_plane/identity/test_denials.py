"""A denial is noted once a minute, not as often as somebody tries."""

from control_plane.identity.denials import MAX_REMEMBERED, QUIET_S, Denials


def test_the_first_is_news_and_the_next_is_not() -> None:
    denials = Denials()
    assert [denials.is_news("token_1", "POST /x", now_s) for now_s in (0.0, 1.0, QUIET_S - 1)] == [True, False, False]


def test_after_a_minute_it_is_news_again() -> None:
    denials = Denials()
    assert denials.is_news("token_1", "POST /x", 0.0)
    assert denials.is_news("token_1", "POST /x", QUIET_S)


def test_another_route_and_another_token_are_news() -> None:
    denials = Denials()
    assert denials.is_news("token_1", "POST /x", 0.0)
    assert denials.is_news("token_1", "POST /y", 0.0)
    assert denials.is_news("token_2", "POST /x", 0.0)


def test_what_is_remembered_is_bounded() -> None:
    denials = Denials()
    for number in range(MAX_REMEMBERED + 1):
        assert denials.is_news(f"token_{number}", "POST /x", 0.0)
    assert denials.is_news("token_0", "POST /x", 1.0)
