"""Supervision as a program sees it: who goes down with whom, who is told, and what its names mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Kernel, vega
from tests.vega.support import FAILING, Seen, play

BOSS = """
    agent Bot { model "sim/script" retry { max_attempts 1 } }
    fn boss(main) {
        main <- "up";
        let bot = spawn Bot supervised by { strategy STRATEGY };
        receive { "go" => {} }
        try { bot <- "x"; } catch AgentFailed { main <- "failed"; }
        process::sleep(1s);
        main <- "went on";
    }
    fn heard() { return receive { x => x, after 5s => "nothing" }; }
    let p = spawn fn boss(process::self()) supervised by { strategy restart };
    print(heard());
    p <- "go";
    print(heard());
    print(heard());
"""


@pytest.mark.parametrize(("strategy", "then"), [("escalate", "up"), ("stop", "went on")])
def test_escalate_is_handled_by_the_supervisor_of_the_one_that_spawned(strategy, then):
    """It takes the process that spawned it along, and that one is started anew; `stop` leaves it alone."""
    lines = play(BOSS.replace("STRATEGY", strategy), Seen(lambda _: FAILING))
    assert lines == ["up", "failed", then]


def test_escalate_of_a_function():
    source = """
        fn child() { process::sleep(1s); throw "boom"; }
        fn boss(main) { main <- "up"; spawn fn child() supervised by { strategy escalate }; process::sleep(1m); }
        spawn fn boss(process::self()) supervised by { strategy restart max_restarts 2 };
        for i in [1, 2, 3, 4] { print(receive { x => x, after 10s => "given up" }); }
    """
    assert play(source) == ["up", "up", "up", "given up"]


def test_escalate_to_one_without_a_supervisor_leaves_it_down():
    source = """
        fn child() { throw "boom"; }
        let p = spawn fn child() supervised by { strategy escalate };
        process::sleep(1s);
        print(process::alive(p));
    """
    assert play(source) == ["false"]


TREE = """
    fn worker(main) { main <- "up"; receive { "crash" => { throw "boom"; } } }
    process::register("main");
    supervisor Tree { strategy STRATEGY child one = fn worker(process::whereis("main")) }
    let tree = spawn Tree;
    receive { "up" => {} }
    let one = process::whereis("one");
    one <- "crash";
    receive {
        ["DOWN", who, reason] => { print("${who == one} ${who == tree} ${reason}"); }
        after 1s => { print("-"); }
    }
    receive { x => { print(x); } after 1s => { print("-"); } }
"""


def test_a_supervisor_that_stops_a_child_tells_its_parent():
    """As a monitor does: who, and why."""
    assert play(TREE.replace("STRATEGY", "stop")) == ["true false Error: boom", "-"]


def test_the_end_of_a_supervisor_is_told_to_those_who_asked_for_it():
    """One monitor, one message; without one, none."""
    source = TREE.replace("STRATEGY", "escalate")
    assert play(source) == ["-", "-"]
    watched = source.replace("let one", "process::monitor(tree); let one")
    assert play(watched) == ["false true Error: boom", "-"]


def test_runs_on_one_kernel_have_names_of_their_own():
    source = """
        fn worker() { receive { ["who", p] => { p <- NUMBER; } } }
        supervisor Team { child worker = fn worker() }
        spawn Team;
        process::sleep(20ms);
        process::whereis("worker") <- ["who", process::self()];
        let said = receive { n => n };
        fn main() { return said; }
    """

    async def main() -> list[Any]:
        async with Kernel() as kernel:
            runs = (vega.run(source.replace("NUMBER", str(number)), kernel=kernel) for number in range(3))
            return await asyncio.gather(*runs)

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_of_any_kind_is_a_failed_agent():
    """Also one that the provider did not mean to raise."""

    def broken(_: Any) -> Any:
        raise KeyError("a bug")

    source = """
        agent Bot { model "sim/script" retry { max_attempts 1 } }
        let bot = spawn Bot supervised by { strategy stop };
        for i in [1, 2] { try { bot <- "x"; } catch AgentFailed(r) { print(r); } }
    """
    assert play(source, Seen(broken)) == [
        "sim failed: KeyError: 'a bug'",
        "agent Bot is gone: sim failed: KeyError: 'a bug'",
    ]
