"""Calls ahead of their turn: what overlaps, what does not and why, and what is left when something fails."""

# ruff: noqa: E501, ISC003, ISC004 - a program a line, put together from its parts

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import msgspec
import pytest

from lyra import Kernel, vega
from lyra.core.budgets.money import Money
from lyra.core.policies.policy import RateLimit
from lyra.models.client import LLMClient
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.script import Reply, Script
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time
from lyra.vega import VegaError
from lyra.vega.bytecode import file as bytecode
from lyra.vega.compiler.compiler import plan_of
from lyra.vega.machine.fiber import Done, EarlyCall, EarlyCallGroup, Fiber, VmEffect
from lyra.vega.machine.link import link
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.machine.vm import run as step
from lyra.vega.plan.plan import OverlapPlan
from lyra.vega.plan.render import dot_of, svg_of, text_of
from lyra.vega.runtime.driver import PROGRAMS
from lyra.vega.runtime.picture import Picture
from lyra.vega.runtime.run import run_world
from lyra.vega.runtime.world import RunOptions, World
from lyra.vega.values.values import Process
from tests.cases import each

AB = """agent A { model "sim/script" } agent B { model "sim/script" }
let a = spawn A; let b = spawn B;
"""
PRICE = Script.from_data(
    {"price": {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}, "replies": [{"text": ""}]}
).price


class Model(SimProvider):
    """Answers `<text>` after a second; `bad` fails, `quick` takes a tenth."""

    def __init__(self) -> None:
        super().__init__(script=self._reply)
        self.asked: list[str] = []

    def price(self, model: str) -> Price | None:
        return PRICE

    def _reply(self, request: Request) -> Reply:
        text = request.messages[-1].text
        self.asked.append(text)
        facts: dict[str, Any] = {"text": f"<{text}>", "first_s": 0.1 if "quick" in text else 1.0}
        if "busy" in text:
            facts["error"] = {"kind": "overloaded"}
        if "bad" in text:
            facts["error"] = {"kind": "bad_request", "message": f"refused {text}"}
        return Reply.from_data(facts)


class Ran(NamedTuple):
    lines: list[str]
    took_s: float
    asked: list[str]
    world: World
    events: list[Any]


def play(source: str, *, processes_max: int = 100_000, script: Any = None, limits: Any = None, **options: Any) -> Ran:
    lines: list[str] = []
    events: list[Any] = []
    clock, model = SimClock(), Model()

    async def main() -> tuple[float, World]:
        async with Kernel(clock=clock, processes_max=processes_max) as kernel:
            client = LLMClient()
            client.register("sim", model if script is None else SimProvider(script))
            kernel.parts["models"] = client
            kernel.on_event(events.append)
            given = RunOptions(write=lines.append, **{"warn": lambda _: None, **options})
            world = World(kernel, vega.compile(source, "x.vega"), given, programs=PROGRAMS)
            world.runtime.settings.limits = limits or {}
            began_s = clock.monotonic()
            try:
                await run_world(world)
            except VegaError as error:
                lines.append(error.render())
            return clock.monotonic() - began_s, world

    took_s, world = run_in_virtual_time(main(), clock=clock)
    return Ran(lines, took_s, model.asked, world, events)


# ---------------------------------------------------------------- what overlaps

OVERLAP = {
    "sends in a row": ('let x = a <- "1"; let y = b <- "2"; print(x + y);', 1.0, 2.0),
    "two in one expression": ('print((a <- "1") + (b <- "2"));', 1.0, 2.0),
    "the value of a return": ('fn f() { return (a <- "1") + (b <- "2"); } print(f());', 1.0, 2.0),
    "a send inside a send": ('let x = b <- (a <- "1") + (a <- "2"); print(x);', 2.0, 3.0),
    "a pure let in between": ('let x = a <- "1"; let t = x + "!"; let y = b <- "2"; print(t + y);', 1.0, 2.0),
    "a loop": ('let t = ""; for f in ["1", "2", "3"] { t = t + (a <- f); } print(t);', 1.0, 3.0),
    "a loop of chains": ("let o = []; for f in [1, 2, 3] { let r = a <- f; o.push(b <- r); } print(o);", 2.0, 6.0),
    "a loop with a count": ('let n = 0; for let i = 0; i < 4; i = i + 1 { n = n + str::len(a <- i); } print(n);', 1.0, 4.0),
    "loops in loops": ("let t = 0; for x in [1, 2] { for y in [3, 4] { t = t + str::len(a <- x * y); } } print(t);", 1.0, 4.0),
    "a known branch": ('let k = 1; let r = ""; if k > 0 { r = a <- "1"; } let q = b <- "2"; print(r + q);', 1.0, 2.0),
    "a map that is filled": ('let o = {}; for k in ["x", "y"] { o[k] = a <- k; } print(o);', 1.0, 2.0),
    "agents as parameters": ('fn f(p, q) { let x = p <- "1"; let y = q <- "2"; return x + y; } print(f(a, b));', 1.0, 2.0),
    "functions that ask": ('fn f(x) { let d = a <- x; return b <- d; } let x = f("1"); let y = f("2"); print(x + y);', 2.0, 4.0),
    "inside a session": ('session budget $10.00 { let x = a <- "1"; let y = a <- "2"; print(x + y); }', 1.0, 2.0),
    "functions under a limit": ('fn f(x) { return a <- x; } session budget $10.00 { let x = f("1"); let y = f("2"); let z = b <- "3"; print(x + y + z); }', 1.0, 3.0),
    "a loop of functions under a limit": ('fn f(x) { return a <- x; } session budget $10.00 { let t = ""; for k in [1, 2, 3] { t = t + f(k); } print(t); }', 1.0, 3.0),
    "functions with a limit of their own": ('agent C { model "sim/script" budget $1.00 } let c = spawn C; fn f(x) { return c <- x; } session budget $10.00 { let x = f("1"); let y = f("2"); print(x + y); }', 1.0, 2.0),
    "inside a try": ('try { let x = a <- "1"; let y = a <- "2"; print(x + y); } catch Error { }', 1.0, 2.0),
    "a prompt made by a lambda": ('let o = []; for p in list::map([1, 2], |x| "p" + x) { o.push(a <- p); } print(o);', 1.0, 2.0),
    "an agent spawned in between": ('let x = a <- "1"; let c = spawn B; let y = c <- "2"; print(x + y);', 1.0, 2.0),
    "an agent each": ('let c = spawn A; let x = c <- "1"; let d = spawn B; let y = d <- "2"; let e = spawn B; let z = e <- "3"; print(x + y + z);', 1.0, 3.0),
    "agents spawned where they are asked": ('print(((spawn A) <- "1") + ((spawn B) <- "2"));', 1.0, 2.0),
    "an agent for each turn": ('let t = ""; for f in ["1", "2", "3"] { let c = spawn A; t = t + (c <- f); } print(t);', 1.0, 3.0),
    "an agent spawned in a known branch": ('let k = 1; let t = a <- "1"; if k > 0 { let c = spawn B; t = t + (c <- "2"); } print(t);', 1.0, 2.0),
    "an agent spawned on the way is asked with answers": ('let x = a <- "1"; let y = a <- "2"; let c = spawn B; let z = c <- x; let w = b <- y; print(z + w);', 2.0, 4.0),
    "an agent spawned on the way in a session": ('session budget $10.00 { let x = a <- "1"; let c = spawn B; let y = c <- "2"; print(x + y); print(budget::used()); }', 1.0, 2.0),
    "a conversation begun in between": ('agent M { model "sim/script" memory conversation } let x = a <- "1"; let m = spawn M; let y = b <- "2"; print(x + y); print(m <- "3");', 2.0, 3.0),
    "a lambda that asks": ('let xs = list::map(["1", "2"], |x| a <- x); print(xs);', 1.0, 2.0),
    "a lambda that asks, in what is printed": ('print(str::join(list::map(["1", "2"], |x| (a <- x) + "!"), ", ") + "?");', 1.0, 2.0),
    "lambdas that ask, one with what came of the other": ('print(list::map(list::map([1, 2], |x| a <- x), |y| b <- y));', 2.0, 4.0),
    "lambdas that ask, over a list with a name": ('let xs = ["1", "2"]; let ys = list::map(list::map(xs, |x| a <- x), |y| b <- y); print(ys + xs);', 2.0, 4.0),
    "three lambdas that ask": ('let xs = ["1", "2"]; print(list::map(list::map(list::map(xs, |x| a <- x), |y| b <- y), |z| a <- z));', 3.0, 6.0),
    "lambdas that ask and keep what they are given": ('let k = [["1"], ["2"]]; let t = list::map(list::map(k, |x| [x, a <- x[0]]), |y| [y, b <- y[1]]); t[0][0][0][0] = "5"; print(k); print(t);', 2.0, 4.0),
    "a lambda that asks beside others": ('let k = "k"; let r = a <- k; let z = list::map([1, 2], |x| b <- x + k); k = "q"; print(r + z[0] + z[1]);', 1.0, 3.0),
    "a lambda that calls a function that asks": ('fn g(x) { return a <- x; } fn f(xs) { return list::map(xs, |x| g(x)); } print(f([1, 2]));', 1.0, 2.0),
    "a lambda in a lambda's block": ('let g = |w| { let v = list::map([w, w + 1], |x| a <- x); return v; }; print(g(1));', 1.0, 2.0),
    "a lambda that keeps what it is given": ('let k = [[1], [2]]; let t = list::map(k, |x| [x, a <- x[0]]); t[0][0][0] = 5; print(k); print(t);', 1.0, 2.0),
    "two lists of the same words, one of which changes": ('let xs = []; let ys = []; for w in str::split("p q", " ") { xs.push(w); ys.push(w); } let u = a <- "1"; ys[0] = "r"; let v = b <- xs[0]; print(u + v);', 1.0, 2.0),
    "hundreds": ("let n = 0; for i in list::range(0, 128) { n = n + str::len(a <- i); } print(n);", 2.0, 128.0),
}  # fmt: skip


@each(OVERLAP)
def test_what_overlaps(case):
    """The waiting overlaps and nothing else changes; `sequential` makes every call in its turn."""
    source, parallel_s, sequential_s = OVERLAP[case]
    in_order, overlapped = play(AB + source, sequential=True), play(AB + source)
    assert overlapped.lines == in_order.lines
    assert sorted(overlapped.asked) == sorted(in_order.asked)
    assert (round(overlapped.took_s, 3), round(in_order.took_s, 3)) == (parallel_s, sequential_s)
    assert not overlapped.world.speculative


BY_ORDER: dict[str, dict[str, Any]] = {
    "each reply once": {"sequence": [{"text": str(number)} for number in range(1, 9)]},
    "some replies so often": {
        "replies": [{"text": "once", "times": 1}, {"text": "then", "times": 2}, {"text": "last"}]
    },
    "replies by the number of the call": {"seed": 3, "replies": [{"one_of": list("pqrstu")}]},
}


@pytest.mark.parametrize("script", BY_ORDER)
@pytest.mark.parametrize(
    "source",
    [
        'let x = a <- "1"; let y = b <- x; let z = a <- "3"; print([x, y, z]);',
        'fn f(x) { let d = a <- x; return [d, a <- d]; } let x = f("1"); let y = f("2"); print([x, y]);',
        'print(list::map(["1", "2", "3"], |x| b <- (a <- x)));',
    ],
)
def test_a_model_that_answers_by_the_order_of_its_questions_is_asked_in_order(script, source):
    """Who came first, such a script can tell: whatever is asked out of turn would get the answer of another."""
    given = {"first_s": 1.0, **BY_ORDER[script]}
    in_order, overlapped = play(AB + source, script=given, sequential=True), play(AB + source, script=given)
    assert overlapped.lines == in_order.lines
    assert overlapped.took_s == in_order.took_s


def test_a_script_that_answers_by_the_question_is_asked_early():
    script = {"first_s": 1.0, "replies": [{"user": "1", "text": "one"}, {"text": "other"}]}
    ran = play(AB + 'let x = a <- "1"; let y = b <- "2"; print(x + y);', script=script)
    assert ran.lines == ["oneother"]
    assert ran.took_s == pytest.approx(1.0)


LIMITED = 'agent G { model "sim/script" retry { max_attempts 1 } %s } let g = spawn G; '
BETWEEN = 'let x = a <- "1"; let y = b <- "2"; print(x + y); '
CAUGHT = 'try { print(g <- "%s"); } catch Error(r) { print("caught " + r); } '
RATE = "rate_limit { requests_per_minute 30 burst 1 strategy %s }"
# A program, and how much later than at its best it may be.
CLOCKED = {
    "a rate limit and a time-out": (LIMITED % f"timeout 700ms {RATE % 'queue'}" + 'print(g <- "quick"); ' + BETWEEN + 'print(g <- "quick");', 2.1),
    "a time-out of the call": (LIMITED % f"memory conversation {RATE % 'queue'}" + 'print(g <- "quick"); ' + BETWEEN + 'print(g <- "quick" timeout 700ms);', 2.1),
    "a stream": (LIMITED % f"timeout 700ms {RATE % 'queue'}" + 'print(g <- "quick"); ' + BETWEEN + 'for c in g <~ "quick" { print(c); }', 2.1),
    "a limit that refuses": (LIMITED % (RATE % "reject") + 'print(g <- "quick"); ' + BETWEEN + 'print(g <- "quick");', 2.1),
    "a limit that refuses, and tries": ('agent G { model "sim/script" rate_limit { requests_per_minute 60 burst 2 strategy reject } } let g = spawn G; print(g <- "quick"); print(g <- "quick"); ' + BETWEEN + 'print(g <- "quick");', 2.1),
    "a limit that has room": (LIMITED % "rate_limit { requests_per_minute 60 burst 9 strategy reject }" + 'print(g <- "quick"); ' + BETWEEN + 'print(g <- "quick");', 1.2),
    "tokens": (LIMITED % "timeout 700ms max_tokens 40 rate_limit { tokens_per_minute 1000 }" + f'print(g <- "quick {"long " * 500}"); ' + BETWEEN * 20 + 'print(g <- "quick");', 40.12),
    "a circuit breaker": (LIMITED % "circuit_breaker { threshold 1 reset_after 1500ms }" + CAUGHT % "quick busy" + BETWEEN + 'print(g <- "quick");', 1.7),
    "restarts in a while": ('agent G { model "sim/script" } let g = spawn G supervised by { strategy restart max_restarts 1 window 1500ms }; ' + CAUGHT % "quick bad" + BETWEEN + CAUGHT % "quick bad" + 'print(g <- "quick");', 2.3),
    "a crash beside others": ('agent G { model "sim/script" } let g = spawn G; try { g <- "quick bad"; } catch Error { } ' + BETWEEN + 'try { parallel { let p = g <- "quick bad"; let q = b <- "1"; } } catch Error(r) { print(r); } print(budget::used());', 2.2),
    "a limit that refuses one of several": (LIMITED % (RATE % "reject") + 'print(g <- "quick"); ' + BETWEEN + 'parallel { let p = g <- "quick"; let q = a <- "quick"; } print(p + q);', 2.1),
    "a crash among calls that overlap": ('agent G { model "sim/script" } let g = spawn G supervised by { strategy restart max_restarts 1 window 1500ms }; ' + CAUGHT % "quick bad" + 'try { let x = a <- "1"; let y = b <- "2"; let z = g <- "quick bad"; } catch Error(r) { print(r); } print(g <- "quick");', 2.3),
    "functions that overlap": ('fn f(x) { let p = a <- x; let q = b <- x; return p + q; } ' + LIMITED % (RATE.replace("30", "16") % "reject") + 'print(g <- "quick"); let x = f("1"); let y = f("2"); print(x + y); print(g <- "quick");', 3.85),
    "answers that others wait for": (LIMITED % (RATE % "reject") + 'print(g <- "quick"); let x = a <- "1"; let y = a <- "2"; let z = b <- x; let w = b <- y; print(z + w); print(g <- "quick");', 2.2),
    "more than are under way at one time": ('agent N { model "sim/script" concurrency 2 } let n = spawn N; ' + LIMITED % (RATE.replace("30", "10") % "reject") + 'print(g <- "quick"); let t = ""; for k in list::range(0, 8) { t = t + (n <- k); } print(t); print(g <- "quick");', 6.1),
}  # fmt: skip


@pytest.mark.parametrize("limit", ["queue", "reject"])
@pytest.mark.parametrize(
    "asks", ['let x = a <- "1"; let y = b <- "2";', 'fn f(p) { return p <- "3"; } let x = f(a); let y = f(b);']
)
def test_a_limit_of_the_model_fails_no_call_that_overlap_made_wait(limit, asks):
    """What agents share by configuration, no program says: the run looks there."""
    ab = AB.replace('"sim/script" }', '"sim/script" timeout 1900ms }')
    shared = RateLimit(requests_per_minute=60, burst=1, strategy=limit)
    in_order, overlapped = (
        play(ab + asks + "print(x + y);", limits={"sim/script": shared}, sequential=way) for way in (True, False)
    )
    assert overlapped.lines == in_order.lines == ["<1><2>" if "1" in asks else "<3><3>"]


@pytest.mark.parametrize("case", CLOCKED)
def test_nothing_fails_because_calls_overlap(case):
    """Who goes by the clock gets the time that it has line by line, as far as it wants it, and no more."""
    source, most_s = CLOCKED[case]
    in_order, overlapped = play(AB + source, sequential=True), play(AB + source)
    assert overlapped.lines == in_order.lines
    assert not any("error" in line for line in in_order.lines)
    assert overlapped.took_s == pytest.approx(most_s, abs=0.01)
    assert overlapped.took_s <= in_order.took_s + 0.001


def test_three_reviews_and_a_summary_take_a_review_and_a_summary():
    """The example of the language's document: at most a tenth more than one review and one summary."""
    source = (
        AB
        + """
        let r1 = a <- "1"; let r2 = a <- "2"; let r3 = a <- "3";
        print(b <- r1 + r2 + r3);
    """
    )
    ran = play(source)
    assert ran.lines == ["<<1><2><3>>"]
    assert ran.took_s <= 2 * 1.1
    assert ran.asked == ["1", "2", "3", "<1><2><3>"]


APART = {
    "print": ('print(a <- "1"); print(a <- "2");', "print"),
    "chain": ('let x = a <- "1"; let y = b <- x;', "it needs the answer of line 3"),
    "branch": ('let x = a <- "1"; if x == "n" { let y = a <- "2"; }', "depends on an answer"),
    "memory": ('agent M { model "sim/echo" memory conversation } let m = spawn M; m <- "1"; m <- "2";', "remembers"),
    "window": ('agent M { model "sim/echo" memory window(3) } let m = spawn M; m <- "1"; m <- "2";', "remembers"),
    "writes": (
        'agent W { model "sim/echo" tool w() -> str { file::write("x", "y"); return ""; } } '
        'let w = spawn W; w <- "1"; w <- "2";',
        "does more than read",
    ),
    "exec": (
        'agent W { model "sim/echo" tool w() -> str capabilities [process::exec] { return ""; } } '
        'let w = spawn W; w <- "1"; w <- "2";',
        "process.exec",
    ),
    "breaker": (
        'agent C { model "sim/echo" circuit_breaker { threshold 5 reset_after 30s } } '
        'let c = spawn C; c <- "1"; c <- "2";',
        "circuit breaker",
    ),
    "unknown": ('for p in [a, b] { p <- "1"; p <- "2"; }', "not known"),
    "stream": ('for c in a <~ "1" { print(c); }', "in pieces"),
    "condition": ('let k = true; let x = k && (a <- "1") == "2"; let y = k && (a <- "3") == "4";', "behind &&"),
    "spawned and printed": (
        'let x = a <- "1"; let c = spawn B; let y = c <- "2"; print(c);',
        "used for more than to ask it",
    ),
    "spawned into a list": (
        'let x = a <- "1"; let c = [spawn B]; let y = a <- "2"; print(c);',
        "used for more than to ask it",
    ),
    "supervised": (
        'let x = a <- "1"; let c = spawn B supervised by { strategy stop }; let y = c <- "2";',
        "says how the process is supervised",
    ),
    "spawned function": ('fn f() { } let x = a <- "1"; spawn fn f(); let y = a <- "2";', "it starts is no agent"),
    "computed settings": (
        'fn f() { return "s"; } agent C { model "sim/script" system f() } '
        'let x = a <- "1"; let c = spawn C; let y = c <- "2";',
        "the settings of C are computed",
    ),
    "settings that change": (
        'let tone = "kind"; agent C { model "sim/script" system tone } '
        'let x = a <- "1"; tone = "rude"; let c = spawn C; let y = c <- "2"; let z = c <- "3";',
        "not known ahead",
    ),
    "a lambda that asks behind something else": (
        'let k = "k"; print(str::upper(k) + str::join(list::map(["1", "2"], |x| a <- x), ""));',
        "across the return",
    ),
    "a lambda with a block": (
        'let xs = list::map(["1", "2"], |x| { let y = a <- x; return y; });',
        "across the return",
    ),
    "one process, in order": (
        'let x = a <- "1"; let y = a <- x; let z = a <- "3"; let w = a <- y;',
        "it needs the answer of line 3",
    ),
}


@pytest.mark.parametrize("case", APART)
def test_what_does_not_overlap_and_why(case):
    source, why = APART[case]
    plan = plan_of(AB + source, "x.vega")
    assert any(why in part.why for part in plan.alone), [part.why for part in plan.alone]
    in_order, overlapped = play(AB + source, sequential=True), play(AB + source)
    assert (overlapped.lines, overlapped.asked) == (in_order.lines, in_order.asked)


def test_an_agent_whose_tools_only_read_overlaps():
    source = """
        agent R { model "sim/echo"
            tool one(path: str) -> str { return file::read(path); }
            tool two(path: str) -> str capabilities [fs::read] { return file::read(path); }
        }
        let r = spawn R;
        let x = r <- "1"; let y = r <- "2";
    """
    (group,) = plan_of(source).groups
    assert [call.line for call in group.calls] == [7, 7]


def test_calls_across_a_return_or_break_are_not_made():
    """What the line-by-line run never asks is never asked."""
    source = (
        AB
        + """
        fn f(x) { if x == "stop" { return "stopped"; } let r = a <- x; let s = b <- x; return r + s; }
        print(f("stop"));
        for x in ["1", "2", "3"] { if x == "2" { break; } let r = a <- x; let s = b <- x; }
    """
    )
    assert play(source).asked == ["1", "1"]


def test_a_continue_of_a_loop_around_the_calls_goes_on_with_the_next_turn():
    """Nothing is asked across it: looking ahead would leave the stretch with it."""
    source = (
        AB
        + """
        let k = 1;
        for x in ["1", "2"] { print(x); let r = a <- x; let s = b <- x; if k > 0 { continue; } print(r + s); }
    """
    )
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.asked == in_order.asked == ["1", "1", "2", "2"]
    assert (overlapped.lines, round(overlapped.took_s, 3)) == (in_order.lines, 2.0)


def test_what_is_no_list_is_mapped_as_ever():
    """The loop that a `list::map` becomes goes over whatever the library's goes over, and refuses what that refuses."""
    source = 'fn id(x) { return x; } print(list::map(id("ab"), |x| a <- x)); print(list::map(id(5), |x| a <- x));'
    in_order, overlapped = play(AB + source, sequential=True), play(AB + source)
    assert overlapped.lines == in_order.lines
    assert overlapped.lines[0] == "[<a>, <b>]"
    assert "error[TypeError]: cannot loop over int" in overlapped.lines[1]


def test_a_call_in_an_arm_is_asked_before_those_behind_it():
    """One process gets its messages in the order of the program, also where one of them is not made early."""
    source = (
        AB + 'let k = 1; let x = b <- "1"; match k { n => { let y = a <- "2"; } } let z = a <- "3"; let w = b <- "4";'
    )
    overlapped = play(source)
    assert [text for text in overlapped.asked if text in "23"] == ["2", "3"]


# ---------------------------------------------------------------- failures


def test_the_first_failure_in_program_order_wins():
    source = AB + 'try { let x = a <- "bad 1"; let y = b <- "quick bad 2"; } catch AgentFailed(r) { print(r); }'
    ran = play(source)
    assert ran.lines == ["refused bad 1"]
    assert ran.took_s == pytest.approx(1.0)


def test_a_failure_cancels_what_was_asked_behind_it_and_waits_for_it():
    """The handler runs when nothing is under way any more, and later bindings were never made."""
    source = (
        AB
        + """
        let x = "old"; let y = "old";
        try { x = a <- "quick bad"; y = b <- "slow"; } catch AgentFailed { print(x + y); }
    """
    )
    ran = play(source)
    assert ran.lines == ["oldold"]
    assert ran.took_s == pytest.approx(0.1)
    assert ran.asked == ["quick bad", "slow"]


def test_a_failure_behind_the_failing_one_crashes_no_agent():
    """An agent of `strategy stop` is gone when the program comes to its failure, not when it happened early."""
    source = (
        'agent A { model "sim/script" retry { max_attempts 1 } }\n'
        + """
        let a = spawn A; let s = spawn A supervised by { strategy stop };
        try { let x = a <- "bad"; let y = s <- "quick bad"; } catch AgentFailed { }
        print(s <- "still there");
    """
    )
    assert play(source).lines == ["<still there>"]


def test_the_error_of_a_function_keeps_its_place():
    source = (
        AB + 'fn f(x) { let r = a <- x;\n return str::char_at(r, 99); }\nlet x = f("1"); let y = f("2");\nprint(x + y);'
    )
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines
    assert "x.vega:4:" in overlapped.lines[0]


# ---------------------------------------------------------------- agents that are asked before they are spawned


def spawned(ran: Ran) -> list[str]:
    """The agents that have a process, in the order in which they got it."""
    return [slot.plan.name for slot in ran.world.agent_slots.values()]


def test_an_agent_behind_a_failure_was_never_spawned():
    """It was asked in vain; there is no process of it, and none was ever started."""
    source = (
        AB + 'try { let x = a <- "bad"; let c = spawn B; let y = c <- "in vain"; } catch AgentFailed(r) { print(r); }'
    )
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines == ["refused bad"]
    assert "in vain" in overlapped.asked
    assert spawned(overlapped) == spawned(in_order) == ["A", "B"]
    fronts = [[event.kind for event in ran.events if event.kind == "process.created"] for ran in (in_order, overlapped)]
    assert len(fronts[1]) == len(fronts[0]) + 1  # the call itself


def test_agents_are_spawned_in_the_order_of_the_program():
    source = """agent A { model "sim/script" } agent B { model "sim/script" } agent C { model "sim/script" }
        let c = spawn C; let x = c <- "1"; let a = spawn A; let b = spawn B; let y = b <- "2"; let z = a <- "quick";
        let last = spawn C; print(x + y + z); print(last);
    """
    in_order, overlapped = play(source, sequential=True), play(source)
    assert spawned(overlapped) == spawned(in_order) == ["C", "A", "B", "C"]
    assert overlapped.lines == in_order.lines  # with the name of a process: as many were started before it
    assert overlapped.took_s == pytest.approx(1.0)


def test_an_agent_that_fails_when_it_has_just_been_spawned_crashes_as_ever():
    """The failure was there before the process was; the process is the one that crashes, and is restarted."""
    source = (
        AB
        + 'try { let x = a <- "1"; let c = spawn B; let y = c <- "quick bad"; } catch Error(r) { print(r); } print(a <- "2");'
    )
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines
    restarts = [
        [event.data["id"] for event in ran.events if event.kind == "child.restarting"] for ran in (in_order, overlapped)
    ]
    assert restarts[1] == restarts[0]
    assert len(restarts[1]) == 1


def test_the_window_of_an_agent_holds_across_its_spawn():
    source = """agent A { model "sim/script" } agent B { model "sim/script" concurrency 2 }
        let a = spawn A; let x = a <- "quick"; let b = spawn B; let t = "";
        for f in ["1", "2", "3", "4", "5"] { t = t + (b <- f); }
        print(x + t);
    """
    assert play(source).took_s == pytest.approx(3.0)


def test_a_failure_in_the_settings_is_raised_in_its_turn():
    source = AB + 'agent N { model "" } let x = a <- "1"; let n = spawn N; let y = n <- "2"; print(x + y);'
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines
    assert "N has no model" in overlapped.lines[0]
    assert overlapped.asked == in_order.asked == ["1"]


def test_where_processes_are_scarce_every_call_is_made_in_its_turn():
    """Calls that are under way must not be what keeps a program from starting a process."""
    source = (
        AB + 'let x = a <- "1"; let c = spawn B; let y = c <- "2"; let d = spawn B; let z = d <- "3"; print(x + y + z);'
    )
    for most in range(6, 14):
        in_order = play(source, sequential=True, processes_max=most)
        overlapped = play(source, processes_max=most)
        assert overlapped.lines == in_order.lines, most


def test_a_watcher_sees_the_calls_of_an_agent_that_was_asked_before_it_was_there():
    source = AB + 'let x = a <- "1"; let c = spawn B; let y = c <- "2"; let z = c <- "3"; print(x + y + z);'
    counted = []
    for sequential in (True, False):
        picture = Picture()
        play(source, sequential=sequential, picture=picture)
        counted.append([(row.name, row.calls) for row in picture.rows(20)[0]])
    assert counted[1] == counted[0]
    assert ("B", 2) in counted[1]


# ---------------------------------------------------------------- money


def test_cancelled_calls_are_told_and_billed_as_speculative():
    source = AB + 'let x = a <- "bad"; let y = b <- "quick and in vain"; print(x + y);'
    ran = play(source)
    told = [event for event in ran.events if event.kind == "call.speculative"]
    assert len(told) == 1
    assert ran.world.speculative.usd > 0
    assert ran.world.budget.usage.usd == play(source, sequential=True).world.budget.usage.usd


def test_a_call_that_may_not_fit_is_not_made_early():
    """Room for one worst case at a time: nothing is asked early, and nothing is lost."""
    limited = 'agent A { model "sim/script" max_tokens 100 } let a = spawn A;\n'
    source = limited + 'let x = a <- "1"; let y = a <- "2"; let z = a <- "3"; print(x + y + z);'
    ran = play(source, budget=Money.parse("$0.015"))
    assert ran.lines == play(source, budget=Money.parse("$0.015"), sequential=True).lines == ["<1><2><3>"]
    assert ran.took_s == pytest.approx(3.0)
    assert play(source, budget=Money.parse("$1.00")).took_s == pytest.approx(1.0)


def test_a_function_that_asks_twice_is_called_in_its_turn_under_a_limit():
    source = (
        AB
        + """fn g(x) { let d = a <- x; return b <- d; } fn h(x) { let r = ""; for y in [x] { r = a <- y; } return r; }
        let x = a <- "1"; let y = g("2"); let z = h("3"); print(x + y + z);
    """
    )
    ran = play(source, budget=Money.parse("$10.00"))
    assert ran.lines == ["<1><<2>><3>"]
    assert ran.took_s == pytest.approx(4.0)
    assert play(source).took_s == pytest.approx(2.0)


@pytest.mark.parametrize("own", ["", "budget $0.50 "], ids=["", "with a limit of each call"])
def test_a_function_that_may_not_fit_is_not_called_early(own):
    """The same for the questions of functions, also of an agent that limits each call by itself."""
    source = f'agent A {{ model "sim/script" max_tokens 100 {own}}} let a = spawn A;\n' + (
        'fn f(x) { return a <- x; } let x = a <- "1"; let y = f("2"); let z = f("3"); print(x + y + z);'
    )
    ran = play(source, budget=Money.parse("$0.015"))
    assert ran.lines == play(source, budget=Money.parse("$0.015"), sequential=True).lines == ["<1><2><3>"]
    assert ran.asked == ["1", "2", "3"]
    assert ran.took_s == pytest.approx(3.0)
    assert not ran.world.speculative
    assert play(source, budget=Money.parse("$1.00")).took_s == pytest.approx(1.0)


def test_the_error_of_a_function_that_did_not_fit_is_said_once():
    """It runs in its turn, and its caller hears of it; no other process does."""
    source = """agent A { model "sim/script" max_tokens 100 } let a = spawn A;
        fn f(x) { return a <- x; }
        let x = a <- "1"; try { let y = f("2"); let z = f("bad"); } catch AgentFailed(r) { print(r); }
    """
    warned: list[str] = []
    assert play(source, budget=Money.parse("$0.015"), warn=warned.append).lines == ["refused bad"]
    assert warned == []


def test_a_session_sees_what_was_spent_in_it():
    source = (
        AB
        + """
        session budget $5.00 { let x = a <- "1"; let y = b <- "22"; print(budget::used()); }
        print(budget::used());
    """
    )
    assert play(source).lines == play(source, sequential=True).lines


# ---------------------------------------------------------------- saving

TWO = AB + 'let x = a <- "1"; let y = b <- "2"; print(x + y);'


def test_pending_calls_survive_a_snapshot():
    """A fiber written down while two calls are under way knows both, and takes both when it goes on."""
    linked = link(bytecode.load(bytecode.dump(vega.compile(TWO))))
    fiber = Fiber.start(linked)
    started: list[str] = []
    taken: list[str] = []
    lines: list[str] = []
    while True:
        outcome = step(fiber)
        if isinstance(outcome, Done):
            break
        assert isinstance(outcome, VmEffect)
        fiber = from_data(linked, msgspec.msgpack.decode(msgspec.msgpack.encode(to_data(fiber))))
        value: Any = None
        if outcome.kind == "spawn":
            value = Process(f"p-{outcome.arguments[1]}")
        elif outcome.kind == "ahead_begin":
            value = EarlyCallGroup(7)
        elif outcome.kind == "ahead_start":
            group = next(register for register in fiber.registers if isinstance(register, EarlyCallGroup))
            call: EarlyCall = outcome.arguments[1]
            group.add(call)
            started.append(f"{call.key} {call.arguments[1]}")
        elif outcome.kind == "ahead_take":
            group, call = outcome.arguments
            held = next(register for register in fiber.registers if isinstance(register, EarlyCallGroup))
            assert held.number == 7
            assert [call.arguments for calls in held.calls.values() for call in calls] == [
                [Process("p-A"), "1", None, None],
                [Process("p-B"), "2", None, None],
            ]
            taken.append(call.key)
            value = f"<{call.arguments[1]}>"
        elif outcome.kind == "print":
            lines.append(outcome.arguments[0])
        fiber.resume(value)
    assert started == ["0.0 1", "1.0 2"]
    assert taken == ["0.0", "1.0"]
    assert lines == ["<1><2>"]


DURABLE = (
    AB
    + """
let x = a <- "1"; let y = b <- "slow"; let z = b <- x;
print(x + y + z);
"""
)


SPAWNING = """agent A { model "sim/script" } agent B { model "sim/script" concurrency 2 }
let a = spawn A; let x = a <- "1"; let b = spawn B; let y = b <- "slow"; let c = spawn B; let z = c <- x;
print(x + y + z);
"""


LIMITED = """agent A { model "sim/script" max_tokens 100 }
let a = spawn A; fn f(x) { return a <- x; }
session budget $0.015 { let x = a <- "1"; let y = f("slow"); let z = f("3"); print(x + y + z); }
"""
# A program, what is asked before it is stopped, what after that, and what it prints.
STOPPED = {
    "spawned before": (DURABLE, ["1", "<1>", "slow"], ["slow"], "<1><slow><<1>>"),
    "spawned on the way": (SPAWNING, ["1", "<1>", "slow"], ["slow"], "<1><slow><<1>>"),
    "a function that did not fit": (LIMITED, ["1", "slow"], ["slow", "3"], "<1><slow><3>"),
}


@pytest.mark.parametrize("case", STOPPED)
def test_a_run_that_was_stopped_with_calls_under_way_asks_none_of_the_finished_again(tmp_path, case):
    """Early calls have keys of their own in the journal, whichever was faster."""
    from lyra.vega.runtime.driver import agent_front, vega_process

    source, before, after, line = STOPPED[case]
    gate: list[asyncio.Event] = []
    asked: list[str] = []

    class Slow(SimProvider):
        def price(self, model: str) -> Price | None:
            return PRICE

        async def stream(self, request: Request) -> Any:
            asked.append(request.messages[-1].text)
            if request.messages[-1].text == "slow" and gate:
                await gate[0].wait()
            async for event in super().stream(request):
                yield event

    async def life(*, is_first: bool) -> list[str]:
        lines: list[str] = []
        gate[:] = [asyncio.Event()] if is_first else []
        kernel = Kernel(tmp_path / "run.db", programs=[vega_process, agent_front])
        client = LLMClient()
        client.register("sim", Slow(script=lambda request: f"<{request.messages[-1].text}>"))
        kernel.parts["models"] = client
        world = World(
            kernel, vega.compile(source), RunOptions(write=lines.append, warn=lines.append), "run", programs=PROGRAMS
        )
        await kernel.start()
        if is_first:
            kernel.spawn(vega_process, "run", None, pid="main", grant=world.rights.grant)
            while len(asked) < len(before):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            await kernel.close(drain_s=0.0)
        else:
            ended = await asyncio.wait_for(kernel.process("main").wait(), 10)
            assert ended.ok, ended
            await kernel.close()
        return lines

    assert asyncio.run(life(is_first=True)) == []
    assert sorted(asked) == before
    asked.clear()
    assert asyncio.run(life(is_first=False)) == [line]
    assert asked == after


# ---------------------------------------------------------------- the plan


def the_plan() -> OverlapPlan:
    return plan_of(AB + 'let r1 = a <- "1";\nlet r2 = a <- "2";\nlet s = b <- r1 + r2;\nprint(s);', "x.vega")


def test_a_plan_as_data():
    data = the_plan().to_data()
    (group,) = data["groups"]
    assert [call["line"] for call in group["calls"]] == [3, 4]
    (alone,) = data["alone"]
    assert (alone["line"], alone["why"], alone["after"]) == (5, "it needs the answer of line 3 and 4", [3, 4])


def test_a_plan_as_text_graph_and_picture():
    from xml.etree import ElementTree

    plan = the_plan()
    assert 'x.vega:3:10  a <- "1"' in text_of(plan)
    assert dot_of(plan).startswith("digraph plan {")
    assert "c0 -> c2;" in dot_of(plan)
    picture = ElementTree.fromstring(svg_of(plan))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(picture.findall("{*}path")) == 2


def test_every_call_is_in_the_plan():
    source = (
        AB
        + """
        fn f(x) { return a <- x; }
        if (a <- "1") == "2" { throw b <- "3"; }
        parallel { let x = a <- "4"; let y = b <- "5"; }
        let g = |x| a <- x;
        print(f(g("6")));
    """
    )
    assert [call.line for call in plan_of(source).calls] == [4, 5, 5, 6, 6, 7, 8]


def test_an_agent_whose_tools_read_what_changes_waits_its_turn():
    source = """
        agent T { model "sim/echo" tool now() -> str { return state; } }
        let state = "old";
        let t = spawn T;
        fn f() { return state; }
        let x = t <- "1";
        state = "new";
        let y = t <- "2";
    """
    assert plan_of(source).groups == ()
    assert len(plan_of(source.replace('state = "new";', "")).groups) == 1


@pytest.mark.parametrize(
    ("body", "seconds", "lines"),
    [
        ('let x = a <- "1"; if true { print(b <- "2"); }', 1.0, 1),
        ('let x = a <- "1"; for i in [1, 2, 3] { if i == 2 { break; } print(b <- "2"); } let y = b <- "3";', 2.0, 1),
        ('let x = a <- "1"; try { throw "no"; } catch Error { b <- "2"; }', 1.0, 0),
        ('let x = a <- "1"; if true { b <- x; }', 2.0, 0),  # it needs the answer
    ],
)
def test_what_is_begun_in_parallel_runs_beside_other_statements(body, seconds, lines):
    ran = play(f"{AB} parallel {{ {body} }} print(x);")
    assert ran.took_s == pytest.approx(seconds)
    assert len(ran.lines) == lines + 1


@pytest.mark.parametrize(
    ("leave", "lines"),
    [
        ("if i == 1 { continue; }", ["2", "end"]),
        ("if i == 1 { break; }", ["end"]),
        ("match i { 1 => { return 0; } _ => {} }", []),
        ('if i == 2 { throw "away"; }', ["1"]),
    ],
)
def test_what_is_begun_in_parallel_is_waited_for_before_anybody_leaves(leave, lines):
    """Nothing is asked behind a block that was left, and nothing is left running."""
    source = f'for i in [1, 2] {{ parallel {{ let x = a <- "1"; {leave} }} print(i); }} print("end");'
    ran = play(f"{AB} fn f() {{ {source} }} f();")
    assert ran.lines[: len(lines)] == lines
    assert ran.took_s == pytest.approx(float(len(ran.asked)))
