"""Loops without a limit of their own: found, named, and with the bound that would stop them."""

from __future__ import annotations

import pytest

from lyra.kernel import Kernel, PipelineConfig
from lyra.kernel.pipelines.files import find_unlimited_loops
from tests.kernel.conftest import run


def loops(*agents, **more):
    return find_unlimited_loops(PipelineConfig.of({"name": "p", "agents": list(agents), **more}))


A = {"name": "a", "default_next": "b"}
B = {"name": "b", "routing_rules": [{"condition": "again", "value": True, "target": "a"}]}
GATE = {"name": "g", "node_kind": "gate"}


def test_a_loop_is_named_with_what_stops_it():
    """Iterations or hops, whichever comes first; gates alone are stopped by the steps in a row."""
    (loop,) = loops(A, B, max_iterations=7, max_agent_hops=100)
    assert (str(loop), loop.bound, loop.limit, loop.rounds) == ("a → b → a", "max_iterations", 7, 7)
    (loop,) = loops(A, B, max_iterations=50, max_agent_hops=8)
    assert (loop.bound, loop.limit, loop.rounds) == ("max_agent_hops", 8, 4)
    (loop,) = loops({**GATE, "default_next": "h"}, {**GATE, "name": "h", "default_next": "g"}, step_limit=10)
    assert (loop.stages, loop.bound, loop.rounds) == (("g", "h"), "step_limit", 5)


@pytest.mark.parametrize(
    ("agents", "more"),
    [
        ((A, {**B, "max_visits": 3}), {}),
        (({**A, "max_visits": 3}, B), {}),
        ((A, B), {"edge_limits": [{"from": "b", "to": "a", "max_count": 2}]}),
        ((A, {"name": "b"}), {}),
        (({"name": "a"}, {"name": "b", "requires": ["a"]}), {"default_run_mode": "parallel"}),
    ],
)
def test_a_limited_loop_is_none_of_these(agents, more):
    """A stage that is counted, an edge that is, or no way back."""
    assert loops(*agents, **more) == []


def test_each_knot_is_told_once():
    """Also one by way of errors, one inside a branch, and one beside a loop that has a limit."""
    fork = {"name": "f", "node_kind": "fork", "branches": ["x"], "default_next": "a"}
    x = {"name": "x", "routing_rules": [{"condition": "n", "value": 1, "target": "y"}]}
    y = {"name": "y", "default_next": "x"}
    told = loops(fork, x, y, A, {**B, "error_next": "a"}, edge_limits=[{"from": "y", "to": "a", "max_count": 2}])
    assert [loop.stages for loop in told] == [("x", "y"), ("a", "b")]


@pytest.mark.parametrize("bounds", [{"max_iterations": 4}, {"max_agent_hops": 5}])
def test_the_bound_that_is_named_is_the_one_that_stops_it(bounds):
    """The pipeline is run until it stops."""
    (loop,) = loops(A, {"name": "b", "default_next": "a"}, **bounds)

    async def work():
        async with Kernel() as kernel:
            agents = [A, {"name": "b", "default_next": "a"}]
            kernel.initialize_orchestration("p", {"name": "p", "agents": agents, **bounds})
            told = kernel.get_next_instruction("p")
            while told.kind == "run_agent":
                told = kernel.report_agent_result("p", {"agent_name": told.agent_name})
            assert told.terminal_reason == f"{loop.bound}_exceeded"

    run(work())
