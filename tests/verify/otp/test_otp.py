"""Lyra's supervisors do what Erlang/OTP's do, on random traces run on both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from verify.compare.otp import ChildPlan, Difference, Trace, compare, erlang_missing, make_trace, run_here

needs_erlang = pytest.mark.skipif(bool(erlang_missing()), reason=erlang_missing() or "Erlang is here")


@needs_erlang
def test_fifty_traces_are_the_same():
    """Answers, living children, starts and stops in order: no difference to a real supervisor."""
    differences = compare(50, 1)
    assert not differences, "\n".join(map(str, differences))


@needs_erlang
def test_the_same_with_a_journal(tmp_path: Path):
    """A durable supervisor does the same as one in memory, and so as OTP's."""
    differences = compare(25, 10_001, stores=lambda seed: str(tmp_path / f"{seed}.db"))
    assert not differences, "\n".join(map(str, differences))


@needs_erlang
def test_the_same_with_a_new_kernel_after_every_step(tmp_path: Path):
    """Children, order and restart window outlive the kernel: OTP's supervisor, never stopped, does the same."""
    differences = compare(20, 20_001, stores=lambda seed: str(tmp_path / f"{seed}.db"), reopen=True)
    assert not differences, "\n".join(map(str, differences))


def test_a_difference_would_be_seen():
    """The line has every start and stop in order, and a difference is shown with its seed and step."""
    children = (ChildPlan("a", "permanent", 5000, False, ()), ChildPlan("b", "transient", 5000, False, (2,)))
    trace = Trace(7, "one_for_all", 3, "never", children, (("crash", "a"), ("normal", "b"), ("which", "a")))
    line = asyncio.run(run_here(trace))
    assert line == (
        "ok up a=up,b=up +a,+b|ok up a=up,b=up -b,+a,!b,-a,+a,+b|ok up a=up,b=down |"
        "ok up a=up,b=down |shutdown dead - -a"
    )
    shown = str(Difference(trace, line, line.replace("!b", "+b")))
    assert "seed 7, step 1" in shown
    assert trace.term().startswith("{one_for_all,3,never,[{a,permanent,5000,false,[]},")


def test_traces_are_functions_of_their_seeds():
    """The same seed gives the same trace; different seeds cover every strategy, restart type and operation."""
    assert make_trace(3) == make_trace(3)
    traces = [make_trace(seed) for seed in range(200)]
    assert len({trace.strategy for trace in traces}) == 3
    assert len({child.restart for trace in traces for child in trace.children}) == 3
    assert len({word for trace in traces for word, _ in trace.operations}) == 9
