"""The line of open questions: the oldest first, whatever ended meanwhile, and no question pays for the others."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.kernel import Kernel
from lyra.kernel.interrupts.interrupt import Interrupt, Line
from lyra.testing.clock import SimClock
from tests.kernel.conftest import run, settle


def question(number: int, *, pid: str = "p", created_at: float = 0.0, expires_at: float | None = None) -> Interrupt:
    return Interrupt(f"int_{number}", pid, "clarification", created_at=created_at, expires_at=expires_at)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("enter"),
            st.sampled_from("pq"),
            st.booleans(),
            st.integers(0, 3),
            st.one_of(st.none(), st.integers(1, 9)),
        ),
        st.tuples(st.just("end"), st.integers(0, 200)),
        st.tuples(st.just("drop"), st.sampled_from("pq")),
    ),
    max_size=200,
)


@given(ACTIONS)
def test_the_line_is_what_a_plain_list_says(actions: list[Any]) -> None:
    """First, last to be over and the order of all are those of a list that is searched from end to end."""
    line, plain = Line(), list[tuple[bool, Interrupt]]()
    for number, (action, *given_) in enumerate(actions):
        if action == "enter":
            pid, outside, created_at, due = given_
            entered = question(number, pid=pid, created_at=created_at, expires_at=due)
            line.enter(entered, outside=outside)
            plain.append((outside, entered))
        elif action == "end" and plain:
            _, entered = plain.pop(given_[0] % len(plain))
            entered.status = "resolved"
            line.leave(entered)
        elif action == "drop":
            line.drop(given_[0], {asked.id for outside, asked in plain if not outside and asked.pid == given_[0]})
            plain = [(outside, asked) for outside, asked in plain if outside or asked.pid != given_[0]]
        for pid in "pq":
            own = [(outside, asked) for outside, asked in plain if asked.pid == pid]
            own.sort(key=lambda pair: pair[0])
            assert line.list_open(pid) == [asked for _, asked in own]
            assert line.list_open(pid, outside=False) == [asked for outside, asked in own if not outside]
            assert line.first(pid) is min((asked for _, asked in own), key=lambda asked: asked.created_at, default=None)
            ends = [math.inf if asked.due is None else asked.due for _, asked in own]
            assert line.open_until(pid) == max(ends, default=-math.inf)


class Counted:
    """A question that counts how often it is looked at."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.pid = "p"
        self.created_at = float(number)
        self.due = 1000.0 - number
        self.now = "pending"

    @property
    def status(self) -> str:
        Counted.looks += 1
        return self.now


@pytest.mark.parametrize("order", ["oldest first", "newest first"])
def test_no_question_pays_for_the_others(order: str) -> None:
    """Ten thousand open questions of one process: each is entered, found and ended with a handful of looks."""
    count, line = 10_000, Line()
    all_counted: list[Any] = [Counted(number) for number in range(count)]
    Counted.looks = 0
    for counted in all_counted:
        line.enter(counted, outside=True)
        assert line.first("p") is all_counted[0]
        assert line.open_until("p") == 1000.0
    for counted in all_counted if order == "oldest first" else all_counted[::-1]:
        counted.now = "resolved"
        line.leave(counted)
        line.first("p")
        line.open_until("p")
    assert line.first("p") is None
    assert Counted.looks <= 12 * count


def test_the_ended_take_no_room() -> None:
    """One old open question does not keep a thousand ended ones behind it."""
    line = Line()
    line.enter(question(0), outside=True)
    for number in range(1, 1000):
        ended = question(number, created_at=number, expires_at=number)
        line.enter(ended, outside=True)
        ended.status = "resolved"
        line.leave(ended)
    held = line.by_pid["p"]
    assert (held.count, len(held.by_age) < 80, len(held.by_end) < 80) == (1, True, True)


def test_the_ended_among_many_open_take_no_more_room_than_those() -> None:
    """Beside a hundred open questions at most as many ended ones are kept, and 64."""
    line = Line()
    for number in range(100):
        line.enter(question(number), outside=True)
    for number in range(100, 1000):
        ended = question(number, created_at=number, expires_at=number)
        line.enter(ended, outside=True)
        ended.status = "resolved"
        line.leave(ended)
        held = line.by_pid["p"]
        assert max(len(held.by_age), len(held.by_end)) <= 2 * 100 + 64
    assert held.count == 100


def test_overdue_questions_end_when_they_are_read() -> None:
    """All were over before a timer rang: who looks finds none, and each has ended as expired, once."""

    async def main() -> None:
        clock = SimClock(1_000.0)
        async with Kernel(clock=clock) as kernel:
            kernel.submit("p")
            ended: list[str] = []
            kernel.on_event(lambda event: ended.append(event.data["id"]) if event.kind == "interrupt.expired" else None)
            ids = [kernel.create_interrupt("p", "timeout", "m").id for _ in range(3)]
            last = kernel.create_interrupt("p", "checkpoint", "m")
            clock.stall(301)  # no timer rings
            assert kernel.get_pending_interrupt("p") == last
            clock.advance(1)
            await settle(kernel)
            assert ended == ids

    run(main())


def test_questions_of_a_closed_kernel_are_left_as_they_are() -> None:
    """After the end nothing is written: an overdue question is passed over and stays pending."""

    async def main() -> None:
        clock = SimClock(1_000.0)
        async with Kernel(clock=clock) as kernel:
            kernel.submit("p")
            overdue = kernel.create_interrupt("p", "timeout", "m")
            later = kernel.create_interrupt("p", "confirmation", "m")
        clock.stall(301)
        assert kernel.interrupts.get_pending_interrupt("p") == later
        assert kernel.interrupts.get_status(overdue.id) == "pending"

    run(main())
