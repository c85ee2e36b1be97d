"""The simulated network loses, repeats, delays and cuts; and when it is whole it does none of it."""

import asyncio
from random import Random

import pytest

from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Network, Refused, Unanswered
from tests.simulation.process import Process
from tests.simulation.story import Story

DEADLINE_S = 2.0


class Pair:
    """Somebody who asks, and a server that notes which questions come, in their order."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        story = Story(lambda: self.loop.now_s)
        self.network = Network(self.loop, Random(1), story)
        self.server = Process("server", story, self.loop)
        self.heard: list[int] = []

    async def _ask(self, number: int) -> int:
        async def serve() -> int:
            self.heard.append(number)
            return number

        return await self.network.ask("one", "other", self.server, serve, DEADLINE_S)

    def ask(self, count: int = 1) -> list[int | BaseException]:
        """The answers to questions that are sent one after the other, without waiting."""
        async def all_of_them() -> list[int | BaseException]:
            asked = []
            for number in range(count):
                asked.append(asyncio.ensure_future(self._ask(number)))
                await asyncio.sleep(0.05)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            await asyncio.sleep(10)
            return list(answers)

        try:
            return self.loop.run_until_complete(all_of_them())
        finally:
            self.loop.close()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_whole_network_carries_each_question_once_and_in_order(pair: Pair) -> None:
    assert pair.ask(50) == list(range(50)) == pair.heard


def test_a_repeated_question_is_heard_twice_and_answered_once(pair: Pair) -> None:
    pair.network.repeated_share = 1.0
    assert pair.ask() == [0]
    assert pair.heard == [0, 0]


def test_late_questions_arrive_in_another_order(pair: Pair) -> None:
    pair.network.slow_share = 0.5
    pair.ask(50)
    assert sorted(pair.heard) == list(range(50)) != pair.heard


def test_a_lost_question_or_answer_is_no_answer_within_the_deadline(pair: Pair) -> None:
    pair.network.lost_share = 0.3
    answers = pair.ask(50)
    lost = sum(isinstance(answer, Unanswered) for answer in answers)
    assert 0 < lost < 50
    assert 50 - lost < len(pair.heard) < 50, "some are lost on the way there, some on the way back"


def test_where_it_is_cut_nothing_passes_until_it_is_mended(pair: Pair) -> None:
    pair.network.cut("other", "one")
    pair.loop.call_later(1.0, pair.network.mend, "one", "other")
    answers = pair.ask(40)
    assert isinstance(answers[0], Unanswered)
    assert (answers[-1], pair.heard[0] > 0) == (39, True)


def test_a_dead_server_refuses(pair: Pair) -> None:
    pair.server.kill()
    assert isinstance(pair.ask()[0], Refused)
    assert pair.heard == []
