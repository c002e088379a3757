"""SimClock: two readings, timers in their order, and the ways to move it by hand."""

from __future__ import annotations

from lyra.testing import SimClock


def test_time_passes_and_timers_fire_at_their_own_time() -> None:
    """Those due on the way fire in order, each at its time; the others wait."""
    clock = SimClock(1000.0)
    fired: list[tuple[str, float, float]] = []
    for name, when in (("late", 9.0), ("second", 3.0), ("first", 1.0)):
        clock.call_at(when, lambda name=name: fired.append((name, clock.monotonic(), clock.now())))  # type: ignore[misc]
    clock.advance(5.0)
    assert fired == [("first", 1.0, 1001.0), ("second", 3.0, 1003.0)]
    assert (clock.monotonic(), clock.now()) == (5.0, 1005.0)


def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = SimClock(100.0)
    fired: list[float] = []
    clock.call_at(2.0, lambda: fired.append(clock.now()))
    clock.jump(3600.0)
    assert (clock.monotonic(), clock.now(), fired) == (0.0, 3700.0, [])
    clock.jump(-3650.0)
    clock.advance(2.0)
    assert fired == [52.0]


def test_a_stall_fires_nothing_until_the_clock_is_told_to() -> None:
    """`fire` runs what is due, once each; what they add for now waits for the next call."""
    clock = SimClock()
    fired: list[str] = []

    def again() -> None:
        fired.append("first")
        clock.call_at(clock.monotonic(), lambda: fired.append("added"))

    clock.call_at(1.0, again)
    clock.stall(10.0)
    assert (clock.monotonic(), fired) == (10.0, [])
    clock.fire()
    assert fired == ["first"]
    clock.fire()
    clock.fire()
    assert fired == ["first", "added"]
