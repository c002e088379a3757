"""Killed with SIGKILL and gone on with: what processes may see of each other is what it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from lyra.kernel.process.cut_short import CUT_OFF
from lyra.store.space import Space
from lyra.vega.durable import durable_run as homecoming
from verify.crash.vega.kills import ID, Scene, is_within
from verify.crash.vega.provider import Provider, billed
from verify.crash.vega.scenes import SCENES

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ONE = 'agent R { model "claude-sonnet-4-20250514" max_tokens 5 }\n'
CONVERSATION = 'agent R { model "claude-sonnet-4-20250514" max_tokens 5 memory conversation }\n'
SPEND = """
let a = spawn R;
try {
    session budget $0.0004 {
        for i in [1, 2, 3, 4, 5, 6] { print(a <- "b${i} slowly"); print(budget::used()); process::sleep(100ms); }
    }
} catch BudgetExceeded(r) { print("over"); }
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


class Killed:
    """A program in peace, and killed in some moments."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self._folder = folder
        self._provider = provider
        self._scenes = 0

    def peace(self, source: str) -> tuple[str, int]:
        """What it prints, and how many requests it makes."""
        scene = self._scene(source)
        assert scene.life(None) == 0, scene.errors
        return scene.output, len(self._provider.take())

    def disturbed(self, source: str, *when: Callable[[Scene], bool]) -> tuple[str, int]:
        """The same where it is killed at these moments; a request that is made again is the same request."""
        scene = self._scene(source)
        keys: set[str] = set()
        for moment in when:
            assert scene.life(None, kill_when=partial(moment, scene)) is None, scene.errors
            keys |= {asked.key for asked in self._provider.take()}
        assert scene.life(None) == 0, scene.errors
        keys |= {asked.key for asked in self._provider.take()}
        return scene.output, len(keys)

    def charged(self, source: str, limit: int, *when: Callable[[Scene], bool]) -> None:
        """Kill it at those moments that it comes to, while its sessions end at their limit in micro-dollars: each
        prints no more than in peace, and the provider bills no more than the limit over all lives."""
        peace = self._scene(source)
        assert peace.life(None) == 0, peace.errors
        self._provider.take()
        scene, bill, again = self._scene(source), 0, 0
        for moment in when:
            status = scene.life(None, kill_when=partial(moment, scene))
            if status is not None:
                break
            asked = self._provider.take()
            bill, again = bill + sum(billed(request.question)[0] for request in asked), again + bool(asked)
        else:
            status = scene.life(None)
        assert status == 0, scene.errors
        bill += sum(billed(request.question)[0] for request in self._provider.take())
        assert again, "it was never killed while a call was under way"
        assert is_within(scene.output, peace.output, limit), scene.output
        assert bill <= limit

    def asked(self, count: int) -> Callable[[Scene], bool]:
        """While the request of this number in its life is under way."""
        return lambda _: self._provider.asked >= count

    def _scene(self, source: str) -> Scene:
        self._scenes += 1
        folder = self._folder / str(self._scenes)
        folder.mkdir()
        return Scene(folder, source, self._provider)


def printed(count: int) -> Callable[[Scene], bool]:
    """Once there are so many lines."""
    return lambda scene: scene.output.count("\n") >= count


@pytest.fixture
def killed(tmp_path: Path, provider: Provider) -> Killed:
    provider.take()
    return Killed(tmp_path, provider)


@pytest.mark.parametrize("agent", [ONE, CONVERSATION], ids=["calls", "conversation"])
def test_a_session_keeps_what_was_spent_in_it(killed, agent):
    """What is answered costs once. A call that is under way when its process is killed stays charged with what was set
    aside, each time: the provider never bills more than the limit, and a crash loop ends with BudgetExceeded."""
    peace = killed.peace(agent + SPEND)
    assert peace[0].endswith("over\n")
    assert peace[0].count("slowly") >= 2
    assert killed.disturbed(agent + SPEND, printed(2)) == peace
    killed.charged(agent + SPEND, 400, killed.asked(2))
    killed.charged(agent + SPEND, 400, *[killed.asked(1)] * 7)


def test_a_session_keeps_what_streams_and_functions_spent_in_it(killed):
    source = (
        CONVERSATION.replace("agent R", "agent M")
        + ONE
        + """
let a = spawn R;
let m = spawn M;
fn work(main, what) { let b = spawn R; main <- (b <- what); }
try {
    session budget $0.0008 {
        for c in m <~ "one" { print(c); }
        for c in a <~ "two" { print(c); }
        spawn fn work(process::self(), "three");
        receive { text => { print(text); } }
        print(budget::used());
        process::sleep(300ms);
        print(budget::used());
        for i in [1, 2, 3, 4, 5] { print(a <- "b${i}"); print(budget::used()); }
    }
} catch BudgetExceeded(r) { print("over"); }
"""
    )
    peace = killed.peace(source)
    assert "over" in peace[0]
    assert killed.disturbed(source, lambda scene: "three" in scene.output and "0.0" in scene.output) == peace


def test_a_session_keeps_what_functions_of_a_parallel_block_spent_in_it(killed):
    """Those that had ended before the kill, too: they are charged when their start is replayed."""
    source = (
        ONE
        + """
fn apart(what) { return a <- what; }
let a = spawn R;
try {
    session budget $0.0008 {
        parallel { let x = apart("one"); let y = apart("two"); }
        print(x + y);
        for i in [1, 2, 3, 4, 5] { print(a <- "b${i}"); print(budget::used()); process::sleep(100ms); }
    }
} catch BudgetExceeded(r) { print("over"); }
"""
    )
    peace = killed.peace(source)
    assert peace[0].endswith("over\n")
    assert killed.disturbed(source, printed(3)) == peace


AHEAD = (
    ONE
    + """
fn apart(what) { return a <- what; }
let a = spawn R;
try {
    session budget $0.0009 {
        let x = a <- "x slowly";
        let y = a <- "y slowly";
        let z = apart("z slowly");
        let w = apart("w slowly");
        print(x + y + z + w);
        print(budget::used());
        for i in [1, 2, 3, 4, 5, 6, 7, 8, 9] { print(a <- "more ${i}"); print(budget::used()); }
    }
} catch BudgetExceeded(r) { print("over"); }
"""
)


@pytest.mark.parametrize("under_way", [1, 2, 3, 4])
def test_a_session_is_charged_for_every_call_that_was_under_way(killed, under_way):
    """Early calls and functions beside each other, and at once: the provider bills no more than the limit, and no two
    of them wait for each other, so three executions take about as long as one does three times."""
    began = time.monotonic()
    peace = killed.peace(AHEAD)
    calm_s = time.monotonic() - began
    assert peace[0].endswith("over\n")
    began = time.monotonic()
    killed.charged(AHEAD, 900, killed.asked(under_way), killed.asked(under_way))
    assert time.monotonic() - began < 10 + 8 * calm_s


NUMBERS = (
    ONE
    + """
fn fall() { process::sleep(50ms); throw Broken("as told"); }
fn tied() {
    let other = spawn fn fall() supervised by { strategy stop };
    process::link(other);
    receive { never => never }
}
let a = spawn R;
let x = a <- "x slowly";
let y = a <- "y slowly";
let p = spawn fn tied() supervised by { strategy stop };
process::monitor(p);
print(p);
receive { ["DOWN", who, why] => { print("${who} ${why}"); } }
"""
)


def test_processes_have_the_numbers_that_they_would_have_had(killed):
    """Programs print them, and the runtime does in what it tells programs."""
    peace = killed.peace(NUMBERS)
    assert "a linked process ended: " in peace[0]
    assert killed.disturbed(NUMBERS, killed.asked(1), killed.asked(2)) == peace
    assert killed.disturbed(NUMBERS, printed(1)) == peace


@pytest.mark.parametrize("agent", [ONE, CONVERSATION], ids=["calls", "conversation"])
def test_a_stream_between_two_pieces_is_found_at_once(killed, agent):
    source = (
        agent
        + """
let a = spawn R;
session budget $0.01 {
    let told = "";
    for piece in a <~ "one two three piece by piece" {
        if told == "" { print("begun"); }
        told = told + piece;
    }
    print(told);
    print(budget::used());
}
"""
    )
    peace, calls = killed.peace(source)
    began = time.monotonic()
    output, keys = killed.disturbed(source, printed(1))
    assert time.monotonic() - began < 15
    assert (output.split("\n")[:-2], keys) == (peace.split("\n")[:-2], calls)
    assert float(peace.split("\n")[-2]) < float(output.split("\n")[-2]) < 0.001  # what was cut off stays charged


_NOT_YET = b"no room for a call that is made early"


def test_a_function_that_found_no_room_ahead_is_not_saved_behind_that(killed):
    """A life that began there would not know the refusal for one that only says: not yet."""
    scene = killed._scene(SCENES["session at once"])
    scene.saves_often = True
    assert scene.life(None) == 0, scene.errors
    refused: set[str] = set()
    saved = 0
    with closing(Space(str(scene.db), ID, make=False)) as space:
        for row in space.read():
            if row.kind == "effect.finished" and _NOT_YET in row.data and row.pid != "main":
                refused.add(row.pid)
            if row.kind == "program.checkpoint":
                assert row.pid not in refused
                saved += 1
    assert refused
    assert saved > 5


def test_no_call_goes_on_before_its_caller_is_there(killed, provider, monkeypatch):
    """A process that has to wait for what ran out of time then, as in journals of older versions, is too late for the
    others; its calls wait for it."""
    source = (
        ONE
        + """
let a = spawn R;
try { print(a <- "never" timeout 1500ms); } catch Error { print("too long"); }
session budget $0.01 {
    let x = a <- "x slowly";
    let y = a <- "y slowly";
    print(x + y);
    print(budget::used());
}
"""
    )
    monkeypatch.setattr(provider, "held", "never")
    monkeypatch.delitem(CUT_OFF, "out_of_time")
    monkeypatch.setattr(homecoming, "_SAY_S", 0.2)
    monkeypatch.setattr(homecoming, "_PATIENCE_S", 0.4)
    scene = killed._scene(source)
    assert scene.life(None, kill_when=lambda: provider.asked >= 3) is None
    assert scene.life(None) == 0
    *lines, used, _ = scene.output.split("\n")
    assert lines == ["too long", "[x slowly] (1)[y slowly] (1)"]
    assert 0.00021 < float(used) < 0.001  # two calls, and what was set aside for the two that were cut off
    assert "not yet where it was: process main; the others wait for it" in scene.errors
    assert "not yet where it was: process main; the others go on" in scene.errors


def test_names_are_known_when_anybody_goes_on(killed):
    """Names that another process gave itself, or was given by one that has ended since."""
    source = """
fn child() { process::register("kid"); while true { receive { "never" => {} } } }
fn namer(who) { process::register("given", who); }
let k = spawn fn child();
spawn fn namer(k);
process::sleep(100ms);
for i in [1, 2, 3, 4] {
    print("${process::whereis("kid") == k} ${process::whereis("given") == k}");
    process::sleep(150ms);
}
"""
    peace = killed.peace(source)
    assert peace[0] == "true true\n" * 4
    assert killed.disturbed(source, printed(1)) == peace
    assert killed.disturbed(source, printed(1), printed(2), printed(3)) == peace


def test_an_open_breaker_stays_open(killed):
    source = """
agent R {
    model "claude-sonnet-4-20250514"
    retry { max_attempts 1 }
    circuit_breaker { threshold 2 reset_after 600s }
}
let a = spawn R supervised by { strategy restart max_restarts 50 window 60s };
for i in [1, 2, 3, 4, 5, 6] {
    try { print(a <- "be down ${i}"); }
    catch CircuitOpen(r) { print("open"); }
    catch AgentFailed(r) { print("failed"); }
    process::sleep(50ms);
}
"""
    peace = killed.peace(source)
    assert peace == ("failed\nfailed\nopen\nopen\nopen\nopen\n", 2)
    assert killed.disturbed(source, printed(1), printed(3)) == peace


def test_a_breaker_closes_by_the_clock_on_the_wall(killed):
    """It was open while no process ran it, too."""
    source = """
agent R {
    model "claude-sonnet-4-20250514"
    retry { max_attempts 1 }
    circuit_breaker { threshold 1 reset_after 1200ms }
}
let a = spawn R supervised by { strategy restart max_restarts 50 window 60s };
try { print(a <- "be down"); } catch AgentFailed(r) { print("failed"); }
try { print(a <- "one"); } catch CircuitOpen(r) { print("open"); }
process::sleep(1300ms);
try { print(a <- "two"); } catch CircuitOpen(r) { print("open"); }
"""
    peace = killed.peace(source)
    assert peace == ("failed\nopen\n[two] (1)\n", 2)
    assert killed.disturbed(source, printed(2)) == peace


@pytest.mark.parametrize("when", ["under way", "between"])
def test_a_rate_limit_counts_the_calls_of_earlier_lives(killed, when):
    """Once each: one that was under way was let through then."""
    source = """
agent R {
    model "claude-sonnet-4-20250514"
    rate_limit { requests_per_minute 3 burst 3 strategy reject }
}
let a = spawn R;
for i in [1, 2, 3, 4, 5] {
    try { print(a <- "slowly ${i}"); } catch RateLimited(r) { print("rejected"); }
}
"""
    peace = killed.peace(source)
    assert peace[1] == 3
    assert peace[0].endswith("rejected\nrejected\n")
    assert killed.disturbed(source, killed.asked(3) if when == "under way" else printed(2)) == peace


@pytest.mark.parametrize(
    ("agent", "budget"), [(ONE, "$0.0019"), (CONVERSATION, "$0.0045")], ids=["calls", "conversation"]
)
def test_a_call_is_expected_to_cost_what_it_was(killed, agent, budget):
    """How many tokens a long text takes was learned from the first answers."""
    source = (
        agent
        + """
let a = spawn R;
let long = str::repeat("so many words and more ", 40);
try {
    session budget BUDGET {
        for i in [1, 2, 3, 4, 5, 6] { print(str::len(a <- long + i)); print(budget::used()); process::sleep(50ms); }
    }
} catch BudgetExceeded(r) { print("over"); }
""".replace("BUDGET", budget)
    )
    peace = killed.peace(source)
    assert peace[1] >= 4
    assert killed.disturbed(source, printed(4)) == peace
    assert killed.disturbed(source, printed(4), printed(6)) == peace
    killed.charged(source, round(1_000_000 * float(budget[1:])), killed.asked(3))


def test_calls_under_way_keep_their_turns(killed, provider):
    """An agent that answers one call at a time does so in the next life, too."""
    source = """
agent R { model "claude-sonnet-4-20250514" concurrency 1 }
let a = spawn R;
parallel { let x = a <- "x slowly"; let y = a <- "y slowly"; }
print(x + y);
"""
    provider.most = 0
    peace = killed.peace(source)
    assert provider.most == 1
    scene = killed._scene(source)
    assert scene.life(None, kill_when=lambda: provider.asked >= 1) is None
    time.sleep(0.7)  # what is not waited for any more is over
    provider.most = 0
    assert scene.life(None) == 0
    assert (scene.output, provider.most) == (peace[0], 1)
