"""Calls ahead of their turn where it gets odd: look-aheads without end, deep recursion, processes that are ended, money
that was on its way, windows and rates."""

# ruff: noqa: E501 - a program a line

from __future__ import annotations

import asyncio

import pytest

from lyra import vega
from lyra.vega.compiler.compiler import plan_of
from lyra.vega.machine import rare_instructions, vm
from tests.vega.plan.test_parallel import AB, play
from verify.compare.vega_parallel import Outcome
from verify.compare.vega_parallel import play as played
from verify.planted import planted
from verify.planted.vega_early_calls import BUGS

ONE = 'agent A { model "sim/script" system "A" max_tokens 40 retry { max_attempts 1 } } let a = spawn A;\n'


def both(source: str) -> tuple[Outcome, Outcome]:
    return played(source, sequential=True, one_in=0), played(source, sequential=False, one_in=0)


# ---------------------------------------------------------------- without end

ENDLESS = """agent R { model "sim/echo" } let r = spawn R;
fn steps(n) { let k = 0; while n != 1 { n = n + 2; k = k + 1; } return k; }
try { let ok = r <- "is 0 odd?"; let z = 1 / (str::len(ok) * 0); let k = steps(0); let t = r <- "explain " + k; print(t); }
catch Error(reason) { print("no: " + reason); }
"""


async def lines_of(source: str, *, within_s: float) -> list[str]:
    lines: list[str] = []
    await asyncio.wait_for(vega.run(source, stdout=lines.append), within_s)
    return lines


def test_a_look_ahead_that_has_no_end_ends():
    """What the line-by-line run never comes to may be endless."""
    assert asyncio.run(lines_of(ENDLESS, within_s=60)) == ["no: division by zero"]


def test_without_fuel_it_would_not():
    with planted(BUGS, "fuel"), pytest.raises(TimeoutError):
        asyncio.run(lines_of(ENDLESS, within_s=1))


# ---------------------------------------------------------------- deep

DEEP = (
    ONE
    + 'fn f(n) { let x = a <- "q" + n; let y = f(n + 1); return x + y; }\ntry { print(f(1)); } catch StackOverflow { print("too deep"); }'
)


def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "VEGA_DEPTH_MAX", 60)
    monkeypatch.setattr(rare_instructions, "VEGA_DEPTH_MAX", 60)


def test_recursion_that_asks_stops_where_the_line_by_line_run_does(monkeypatch):
    shallow(monkeypatch)
    in_order, overlapped = both(DEEP)
    assert in_order.lines == overlapped.lines == ["too deep"]
    assert len(in_order.asked) == 59
    assert sorted(overlapped.asked) == sorted(in_order.asked)
    assert overlapped.took_s < in_order.took_s


def test_without_the_rule_it_goes_deeper(monkeypatch):
    shallow(monkeypatch)
    with planted(BUGS, "depth"):
        in_order, overlapped = both(DEEP.replace("let x", 'if n == 100 { return "end"; } let x'))
    assert in_order.lines == ["too deep"]
    assert overlapped.lines != in_order.lines


TREE = (
    ONE + 'fn t(n) { if n == 0 { return a <- "leaf"; } let x = t(n - 1); let y = t(n - 1); return x + y; } print(t(8));'
)


def test_at_most_64_calls_of_one_process_are_under_way():
    in_order, overlapped = both(TREE)
    assert overlapped.lines == in_order.lines
    assert overlapped.most["A"] <= 64
    assert overlapped.took_s < in_order.took_s / 10


def test_concurrency_counts_the_calls_of_all_processes_of_an_agent():
    source = """agent B { model "sim/script" system "B" concurrency 2 } let b = spawn B; let c = spawn B;
    let t = ""; for x in ["1", "2", "3", "4"] { t = t + (b <- x) + (c <- x); } print(t);"""
    in_order, overlapped = both(source)
    assert overlapped.lines == in_order.lines
    assert (in_order.most["B"], overlapped.most["B"]) == (1, 2)


# ---------------------------------------------------------------- ended from outside, and on its way

KILLED = """agent Q { model "sim/script" } agent R { model "sim/script" }
let q = spawn Q; let r = spawn R;
fn worker(main) { let x = r <- "slow"; let y = q <- "quick and paid for"; let z = q <- LAST; main <- x + y + z; }
fn killer(p) { process::link(p); process::sleep(500ms); throw "boom"; }
let p = spawn fn worker(process::self()); process::monitor(p); let k = spawn fn killer(p);
receive { ["DOWN", who, reason] => { print("down"); } }
process::sleep(4s);
"""


@pytest.mark.parametrize("last", ['"long"', "x"], ids=["while it takes", "while it looks ahead"])
def test_what_a_process_has_asked_that_is_ended_is_told_and_billed(last):
    """One call was answered, the others were on their way: all are speculative, none is lost."""
    ran = play(KILLED.replace("LAST", last))
    assert ran.lines == ["down"]
    told = [event for event in ran.events if event.kind == "call.speculative"]
    assert len(told) == len(ran.asked) == (3 if last == '"long"' else 2)
    answered = play(AB + 'print(a <- "quick and paid for");').world.budget.usage.usd
    assert ran.world.speculative.usd > answered > 0


def test_what_was_on_its_way_is_billed_by_its_question():
    source = (
        AB + 'try { let x = a <- "quick bad"; let y = b <- "a long question that takes its time"; } catch Error { }'
    )
    ran = play(source)
    assert len([event for event in ran.events if event.kind == "call.speculative"]) == 1
    assert ran.world.speculative.usd > 0
    assert ran.world.budget.usage.usd == play(source, sequential=True).world.budget.usage.usd
    (cut,) = [event.data for event in ran.events if event.kind == "model.called" and "guessed_usd" in event.data]
    assert cut["guessed_usd"] * 1_000_000 == pytest.approx(int(ran.world.speculative.usd))


def test_a_time_out_costs_the_same_early_or_not():
    """A guess is for what was given up, never for what the program came to."""
    source = AB + 'try { let x = a <- "1"; let y = b <- "2" timeout 500ms; } catch Error { print(budget::used()); }'
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines
    assert not overlapped.world.speculative


# ---------------------------------------------------------------- rates


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("timeout 3s rate_limit { requests_per_minute 60 burst 2 strategy queue }", "counts for its time-out"),
        ("rate_limit { requests_per_minute 60 burst 2 strategy backpressure }", "refuses calls when others wait"),
        ("rate_limit { requests_per_minute 60 burst 2 strategy reject }", "refuses calls that come too soon"),
        ("rate_limit { requests_per_minute 60 burst 2 strategy queue }", ""),
    ],
)
def test_a_rate_limit_that_could_fail_a_call_keeps_it_in_its_turn(settings, why):
    source = f'agent L {{ model "sim/script" system "L" {settings} }} let l = spawn L;\n'
    source += 'let t = ""; for x in ["1", "2", "3", "4", "5", "6"] { t = t + (l <- x); } print(t);'
    plan = plan_of(source)
    assert (why in plan.alone[0].why and not plan.groups) if why else plan.groups
    if "reject" not in settings:
        in_order, overlapped = both(source)
        assert (overlapped.lines, overlapped.end) == (in_order.lines, in_order.end)


def test_a_time_out_of_one_question_is_enough():
    source = 'agent L { model "sim/echo" rate_limit { requests_per_minute 60 } } let l = spawn L;\nlet x = l <- "1"; let y = l <- "2"; let z = l <- "3" timeout 1s;'
    assert not plan_of(source).groups
    assert plan_of(source.replace(" timeout 1s", "")).groups


# ---------------------------------------------------------------- the plan of odd programs

REASONS = {
    "a function that does more": ('fn f(x) { let c = spawn A; return c <- x; } let x = f("1"); let y = f("2");', "f(", "does more than ask: spawn"),
    "a function that tries": ('fn f(x) { try { return a <- x; } catch Error { return ""; } } let x = [f("1"), f("2")];', "f(", "does more than ask: try"),
    "beside such a function": ('fn f(x) { return a <- x; } fn g(x) { try { return a <- x; } catch Error { return ""; } } let x = [f("1"), g("2")];', "f(", "nothing is asked early across `g` (try) on line 3, which is in the same statement"),
    "for one item after the other": ('fn f(x) { let y = a <- x; return y; } let x = list::map(["1"], f);', "list::map(", "it calls `f` for one item after the other"),
    "a chain in a loop": ('let t = ""; for x in ["1", "2"] { t = a <- t + x; }', "a <- t", "each turn of the loop needs the answer of the one before"),
    "in order in a loop": ('for x in ["1", "2"] { let y = a <- x; let z = a <- y; }', "a <- x", "its receiver gets its messages in order"),
    "a list that changes": ('let xs = ["1"]; let x = a <- xs[0]; xs.push(x); let y = a <- xs[0]; let z = b <- "3";', "a <- xs", "it reads `xs`, which changes beside it"),
    "a list that changes under another name": ('let xs = ["1"]; let ys = xs; let x = a <- xs[0]; ys.push(x); let y = a <- xs[0]; let z = b <- "3";', "a <- xs", "it reads `xs`, which may have a part of `ys`, and that changes beside it"),
    "a function that reads what changes": ('let xs = []; fn f(x) { return a <- x + xs.len(); } let x = f("1"); xs.push(x); let y = f("2");', "f(", "`f` reads `xs`, which changes beside it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REASONS)
def test_a_plan_has_every_call_and_says_why(case):
    source, call, why = REASONS[case]
    reasons = [part.why for part in plan_of(AB + source, "x.vega").alone if part.call.text.startswith(call)]
    assert reasons
    assert why in reasons[0]


def test_named_arguments_and_defaults_overlap():
    source = AB + 'fn f(x, y = "d") { return a <- x + y; } let x = f(y: "1", x: "2"); let z = f("3"); print(x + z);'
    in_order, overlapped = play(source, sequential=True), play(source)
    assert overlapped.lines == in_order.lines
    assert (round(overlapped.took_s, 3), round(in_order.took_s, 3)) == (1.0, 2.0)


# ---------------------------------------------------------------- other names of a list


@pytest.mark.parametrize(
    "pattern",
    [
        'inner[0] = x; let y = b <- outer[0][0]; inner = "done";',
        'list::push(inner, x); let y = b <- "of ${outer[0].len()}"; inner = "done";',
        'let other = inner; if x == "" { inner = "none"; } other[0] = x; let y = b <- outer[0][0];',
    ],
)
def test_a_list_that_a_pattern_gave_a_name_is_seen_to_change(pattern):
    """Also where the name gets a text elsewhere: no question is asked with what the list held before."""
    source = (
        ONE
        + f"""let b = spawn A; let outer = [["old"]];
        match outer {{ [inner] => {{ let x = a <- "q"; {pattern} print(x + y); }} }}"""
    )
    in_order, overlapped = both(source)
    assert overlapped.lines == in_order.lines
    assert sorted(overlapped.asked) == sorted(in_order.asked)
    assert len(in_order.asked) == 2
