"""A recorded run, read and played: what was done, in order; every moment of it again, forwards and backwards."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from lyra.cli.vega.replay_screen import screen
from lyra.core import codec
from lyra.errors import ConfigError, Corrupt, StoreError
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.vega.durable.runs import Runs
from lyra.vega.machine.snapshot import to_data
from lyra.vega.replay.breakpoints import ProgramBreakpoints
from lyra.vega.replay.player import Player
from lyra.vega.replay.reader import read
from lyra.vega.replay.timeline import Timeline, brief
from tests.limits import within
from tests.vega.recorded import FILE, TEAM, Recorded
from tests.vega.support import FAILING, Seen
from verify.crash.vega.kills import Scene
from verify.crash.vega.provider import Provider


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    recorded = Recorded(tmp_path_factory.mktemp("team"))
    recorded.run(TEAM)
    return recorded


@pytest.fixture(scope="module")
def timeline(team: Recorded) -> Timeline:
    return team.timeline()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(TEAM.split("\n"), 1) if text in line)


def picture(player: Player) -> bytes:
    """Everything about where a player stands."""
    standings: dict[str, Any] = {}
    for pid in player.pids:
        standing = player.standing(pid)
        assert standing is not None
        standings[pid] = [to_data(standing.fiber), standing.at, standing.ended, standing.is_over]
    return codec.encode([player.position, player.inside, standings])


# ---------------------------------------------------------------- the timeline
def test_a_timeline_has_every_effect_in_order(timeline: Timeline, team: Recorded):
    """With its process, its place, what was asked and what came of it; and reading changes nothing."""
    before = team.rows()
    asked = [(step.agent, step.message, step.result, step.line) for step in timeline.steps if step.agent]
    assert ("A", "one", '"one"', line_of('"one"')) in asked
    assert ("M", "two", '"two"', line_of('"two"')) in asked
    assert [step.number for step in timeline.steps] == list(range(len(timeline)))
    assert all(step.seq <= after.seq for step, after in zip(timeline.steps, timeline.steps[1:], strict=False))
    assert timeline.steps[0].kind == "start"
    assert timeline.steps[-1].kind == "end"
    assert not timeline.notes
    assert team.rows() == before


def test_the_output_so_far_belongs_to_a_position(timeline: Timeline, team: Recorded):
    assert timeline.output(len(timeline)) == team.output()
    assert timeline.output(0) == []
    prints = [step.number for step in timeline.steps if step.kind == "print"]
    assert timeline.output(prints[1]) == ["one"]
    assert timeline.output(prints[3], limit=2) == ["two", "[6, 20]"]


def test_costs_and_tokens_are_those_of_the_step_that_caused_them(tmp_path: Path):
    script = tmp_path / "script.toml"
    script.write_text(
        "[price]\ninput_usd_per_mtok = 1000000\noutput_usd_per_mtok = 1000000\n[[replies]]\ntext = 'yes'\n"
    )
    recorded = Recorded(tmp_path)
    source = (
        f'agent A {{ model "sim/script:{script}" }}\nlet a = spawn A;\nprint("x");\nlet r = a <- "go";\nprint(r);\n'
    )
    recorded.run(source)
    timeline = recorded.timeline()
    (asked,) = [step for step in timeline.steps if step.agent == "A"]
    assert asked.micro_usd > 0
    assert asked.usage["llm_calls"] == 1
    assert sum(step.micro_usd for step in timeline.steps) == asked.micro_usd
    assert timeline.sum_costs(asked.number).get("usd", 0) == 0
    assert timeline.sum_costs(asked.number + 1) == asked.usage
    player = Player(timeline)
    breaks = ProgramBreakpoints(player)
    breaks.add("cost $0.000001")
    hit = breaks.forward()
    assert hit is not None
    assert player.position == asked.number + 1


KINDS = {
    "failure": """
agent A { model "sim/script" }
let a = spawn A;
try { a <- "fail"; } catch AgentFailed { print("no"); }
""",
    "time-out": "receive { x => {} after 20ms => { print(1); } }\nprocess::sleep(10ms);",
    "crash": """
fn f() { throw Bad("x"); }
let p = spawn fn f();
process::monitor(p);
receive { d => { print(d[2]); } }
""",
    "session": "session budget $1.00 { print(budget::remaining()); }",
    "exit": """
fn w() { process::exit("tired"); }
let p = spawn fn w();
process::monitor(p);
receive { d => { print(d); } }
""",
    "outside": 'print([env::get("NO_SUCH", "x"), math::random_int(1, 5) < 6, time::now() > 1.0]);',
    "supervisor": """
supervisor S { child w = fn w(process::self()) }
fn w(m) { m <- 1; receive { x => {} } }
let s = spawn S;
receive { n => { print(n); } }
""",
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_effects_are_played_again(tmp_path: Path, kind: str):
    """Time-outs, crashes, links, sessions, readings of the outside: as it was, and in no time."""
    recorded = Recorded(tmp_path)
    lines = recorded.run(
        KINDS[kind], model=Seen(lambda request: FAILING if request.messages[-1].text == "fail" else "ok")
    )
    timeline = recorded.timeline()
    player = Player(timeline)
    player.goto(len(timeline))
    assert timeline.output(len(timeline)) == lines
    assert len(lines) == 1
    assert not timeline.notes
    assert not player.diverged


@pytest.mark.timed
def test_a_long_wait_takes_no_time_again(tmp_path: Path):
    recorded = Recorded(tmp_path)
    source = "fn f(m) { process::sleep(1h); m <- 1; }\nlet p = spawn fn f(process::self());\n"
    source += "receive { x => {} after 1s => {} }\nprint(2);"
    recorded.run(source)
    began = time.monotonic()
    timeline = recorded.timeline()
    within(time.monotonic() - began, 0.8)
    assert timeline.output(len(timeline)) == ["2"]
    assert [what for pid, what in timeline.waits.items() if pid != "main"] == ["process::sleep 1h"]


def test_a_run_that_was_stopped_stands_where_it_was(tmp_path: Path):
    """What it waits for is said, and nothing is done for it."""
    recorded = Recorded(tmp_path)
    recorded.run('print("a");\nlet n = 1;\nreceive { x => {} }\nprint("never");', stop_after_s=0.3)
    player = recorded.player()
    player.goto(len(player.timeline))
    assert player.timeline.state == "stopped"
    assert player.timeline.waits == {"main": "receive"}
    assert player.view() == {"n": 1}
    assert player.place() == (FILE, 3)


# ---------------------------------------------------------------- the player
def test_every_moment_is_the_same_from_both_sides(timeline: Timeline):
    player = Player(timeline)
    pictures = [picture(player)]
    while player.step():
        pictures.append(picture(player))
    assert not player.diverged
    assert len(pictures) == len(timeline) + 1
    while player.position:
        player.back()
        assert picture(player) == pictures[player.position]
    for position in (17, 3, len(timeline), 9):
        player.goto(position)
        assert picture(player) == pictures[position]


def test_lines_lead_forwards_and_back(timeline: Timeline):
    player = Player(timeline)
    there = [picture(player)]
    places = []
    while player.line():
        there.append(picture(player))
        places.append((player.in_view, player.place()[1]))
    loop = line_of("let square")
    assert places.count(("main", loop)) == 3
    assert places.count(("main", line_of("return c"))) == 3
    for expected in reversed(there[:-1]):
        assert player.back_line()
        assert picture(player) == expected
    assert not player.back_line()


def test_saved_states_are_thinned_out_and_stay_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lyra.vega.replay.player._STATES_MAX", 8)
    monkeypatch.setattr("lyra.vega.replay.player._EVERY", 2)
    recorded = Recorded(tmp_path)
    recorded.run("let n = 0;\nfor i in list::range(0, 100) { n = n + i; print(n); }")
    player = recorded.player()
    player.goto(len(player.timeline))
    assert len(player._states) <= 9
    sums = [sum(range(last + 1)) for last in range(100)]
    for number in (99, 50, 3, 77):
        (place,) = [
            step.number for step in player.timeline.steps if step.kind == "print" and step.message == str(sums[number])
        ]
        player.goto(place)
        assert player.view()["n"] == sums[number]


@pytest.mark.timed
def test_a_step_back_takes_no_time_in_a_run_of_ten_thousand_effects(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run('let seen = [];\nfor i in list::range(0, 10000) { seen.push(math::random()); }\nprint("end");')
    player = recorded.player()
    assert len(player.timeline) > 10_000
    player.goto(len(player.timeline))
    assert not player.diverged
    took = []
    for _ in range(40):
        began = time.process_time()
        player.back()
        player.place()
        took.append(time.process_time() - began)
    within(sorted(took)[-3], 0.05)


def test_a_run_that_saves_its_processes_is_read_from_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Checkpoints take keys of their own and new seeds for the dice; the replay knows where they were."""
    monkeypatch.setattr("lyra.vega.durable.durable_run.EFFECTS", 3)
    monkeypatch.setattr("lyra.vega.durable.durable_run.LOOK_EVERY", 1)
    recorded = Recorded(tmp_path)
    source = """\
agent A { model "sim/script" }
let a = spawn A;
for i in list::range(0, 20) {
    print(math::random());
    math::random();
    if i % 3 == 0 { print(a <- "q${i}"); }
}
"""
    lines = recorded.run(source)
    assert any(row.kind == "program.checkpoint" for row in recorded.rows())
    timeline = recorded.timeline()
    assert not timeline.notes
    assert timeline.output(len(timeline)) == lines


def test_calls_ahead_of_their_turn_are_shown_where_the_program_comes_to_them(tmp_path: Path):
    recorded = Recorded(tmp_path)
    source = """\
agent A { model "sim/script" }
fn review(a, what) { return a <- "review ${what}"; }
let a = spawn A;
let one = a <- "one";
let two = a <- "two";
let three = review(a, "three");
print(one + two + three);
"""
    lines = recorded.run(source)
    player = recorded.player()
    player.goto(len(player.timeline))
    asked = [step.message for step in player.timeline.steps if step.agent and step.pid == "main"]
    assert asked == ["one", "two"]
    assert player.timeline.output(len(player.timeline)) == lines == ["onetworeview three"]
    assert not player.diverged
    while player.back_line():
        pass
    assert player.position == 0


@pytest.mark.timed
def test_a_thousand_processes_are_no_trouble(tmp_path: Path):
    recorded = Recorded(tmp_path)
    source = """\
fn worker(main, i) { receive { n => { main <- [i, n * 2]; } } }
let ps = [];
for i in list::range(0, 1000) { ps.push(spawn fn worker(process::self(), i)); }
for p in ps { p <- 21; }
let total = 0;
for p in ps { receive { [i, n] => { total = total + n; } } }
print(total);
"""
    assert recorded.run(source) == ["42000"]
    player = recorded.player()
    player.goto(len(player.timeline))
    assert len(player.pids) == 1001
    began = time.process_time()
    for _ in range(20):
        player.back()
    within((time.process_time() - began) / 20, 0.05)
    lines = screen(player, 80, 24, colours=False)
    assert len(lines) == 24
    half = len(player.timeline) // 2
    player.goto(half)
    waiting = [pid for pid in player.pids if not player.state(pid)[2]]
    assert 100 < len(waiting) < 1001


# ---------------------------------------------------------------- variables and expressions
def test_variables_have_their_names(timeline: Timeline):
    """Of the call in progress, of blocks that are open, of closures; not of those that are not set yet."""
    player = Player(timeline)
    breaks = ProgramBreakpoints(player)
    breaks.add(f"line {FILE}:{line_of('return c')}")
    assert breaks.forward() is not None
    assert player.locals() == {"a": 1, "b": 1, "c": 2}
    breaks.add(f"line {FILE}:{line_of('total = total')}")
    breaks.forward()
    seen = player.view()
    assert (seen["i"], seen["square"], seen["total"]) == (1, 2, 0)
    assert "c" not in seen
    assert "p" in seen
    player.goto(4)
    assert "k" not in player.locals()
    worker = next(pid for pid in timeline.processes if pid != "main")
    number = next(step.number for step in timeline.steps if step.pid == worker and step.kind == "send")
    player.goto(number)
    assert player.in_view == worker
    assert player.view()["n"] == 1
    assert player.view()["xs"] == [5]


def test_messages_wait_in_the_mailbox(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run(
        'let me = process::self();\nme <- "late";\nme <- "go";\nreceive { "go" => {} }\nreceive { x => { print(x); } }'
    )
    player = recorded.player()
    (last,) = [step.number for step in player.timeline.steps if step.kind == "print"]
    number = max(step.number for step in player.timeline.steps if step.kind == "receive" and step.number < last)
    player.goto(number + 1)
    standing = player.standing("main")
    assert standing is not None
    assert list(standing.fiber.mailbox or ()) in (["late"], [])


def test_expressions_compute_and_do_nothing_else(timeline: Timeline):
    player = Player(timeline)
    with pytest.raises(ConfigError, match="nothing has begun"):
        player.value("1")
    number = next(step.number for step in timeline.steps if step.message == "xy")
    player.goto(number)
    before = picture(player)
    assert player.value('x + y + "${k * 2}"') == "xy20"
    assert player.value("add(k, 1)") == 11
    with pytest.raises(ConfigError, match="needs an effect"):
        player.value('a <- "hello"')
    with pytest.raises(ConfigError, match="nothing_like_it"):
        player.value("nothing_like_it + 1")
    with pytest.raises(ConfigError, match="ZeroDivision"):
        player.value("k / 0")
    with pytest.raises(ConfigError, match="missing"):
        player.value(" ")
    with pytest.raises(ConfigError):
        player.value("1; } fn other() { return 2")
    assert picture(player) == before


def test_an_expression_that_does_not_end_is_given_up(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run("fn spin() { while true {} }\nlet x = 1;\nprint(x);")
    player = recorded.player()
    player.goto(2)
    with pytest.raises(ConfigError, match="too long"):
        player.value("spin()")


def test_a_run_without_sources_has_parameters_and_globals(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run("fn f(n) { let m = n + 1; print(m); }\nf(4);", sources={})
    player = recorded.player()
    player.goto(2)
    player.back()
    assert not player.variables.has_names
    player.goto(next(step.number for step in player.timeline.steps if step.kind == "print"))
    assert player.view() == {"n": 4}
    assert screen(player, 80, 24, colours=False)


# ---------------------------------------------------------------- breakpoints
def test_breakpoints_stop_in_both_directions(timeline: Timeline):
    player = Player(timeline)
    breaks = ProgramBreakpoints(player)
    breaks.add("agent M")
    breaks.add("if total > 5")
    breaks.add(f"line {FILE}:{line_of('let c')}")
    there = []
    while (hit := breaks.forward()) is not None:
        there.append((hit.breakpoint.kind, player.position, player.inside))
    assert [kind for kind, *_ in there].count("agent") == 2
    assert [kind for kind, *_ in there].count("line") == 3
    assert player.position == len(timeline)
    back = []
    while (hit := breaks.backward()) is not None:
        back.append((hit.breakpoint.kind, player.position, player.inside))
    assert back == there[::-1]
    assert player.position == 0
    breaks.delete(2)
    breaks.delete(3)
    player.goto(len(timeline))
    hit = breaks.backward()
    assert hit is not None
    assert timeline.steps[player.position].message == "more"


def test_an_expression_is_looked_at_before_every_effect(tmp_path: Path):
    """A loop on one line has one line and many effects; both ways, and on from a line as well."""
    recorded = Recorded(tmp_path)
    recorded.run(
        'agent A { model "sim/script" }\nlet a = spawn A;\n'
        'for i in [1, 2, 3] { let x = a <- "x${i}"; let y = a <- "y${i}"; print(x + y); }'
    )
    player = recorded.player()
    breaks = ProgramBreakpoints(player)
    breaks.add("if i == 2")
    there = []
    while breaks.forward() is not None:
        step = player.next_step
        assert step is not None
        there.append((player.position, step.message))
    assert [message for _, message in there] == ["x2", "y2", "x2y2"]
    back = []
    while breaks.backward() is not None:
        back.append(player.position)
    assert back == [position for position, _ in there][::-1]


def test_from_a_line_the_next_effect_stops(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run('agent A { model "sim/script" }\nlet a = spawn A;\nlet n = 1;\nn = n + 1;\nprint(a <- "x");')
    player = recorded.player()
    breaks = ProgramBreakpoints(player)
    breaks.add(f"line {FILE}:4")
    breaks.add("agent A")
    kinds = []
    while (hit := breaks.forward()) is not None:
        kinds.append(hit.breakpoint.kind)
    assert kinds == ["line", "agent"]


def test_an_error_stops(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run("let x = 0;\ntry { http::get(1); } catch TypeError { x = 1; }\nlet y = 1 / 0;")
    player = recorded.player()
    breaks = ProgramBreakpoints(player)
    breaks.add("error")
    hits = []
    while breaks.forward() is not None:
        step = player.next_step
        assert step is not None
        hits.append(step.error.partition(":")[0])
    assert hits == ["TypeError", "ZeroDivision"]
    breaks.delete(1)
    breaks.add("error zerodiv")
    player.goto(0)
    assert breaks.forward() is not None
    assert player.place() == (FILE, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "where to"),
        ("agnt A", "no `break agnt`"),
        ("agent B", "no agent 'B'"),
        ("cost lots", "no amount"),
        ("cost 5", "no amount of money"),
        ("cost .5", "no amount of money"),
        ("line nowhere.vega:3", "no file"),
        ("line 3x", "no line"),
        (f"line {FILE}:9999", "has no line 9999"),
        (f"line {FILE}:0", "has no line 0"),
        ("if nosuch > 1", "nosuch"),
        ("if square > 1 && len(xs) > nosuch", "nosuch"),
        ("if ", "missing"),
        ("if total ==", "total =="),
        ("if 1; print(2)", "no expression"),
    ],
)
def test_a_breakpoint_that_is_none_is_refused(timeline: Timeline, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        ProgramBreakpoints(Player(timeline)).add(text)


def test_a_name_that_is_nearly_one_is_said(timeline: Timeline):
    with pytest.raises(ConfigError) as caught:
        ProgramBreakpoints(Player(timeline)).add("if totl > 1")
    assert caught.value.hint == "did you mean total?"
    with pytest.raises(ConfigError) as caught:
        ProgramBreakpoints(Player(timeline)).add("if nosuchthing > 1")
    assert "vars" in str(caught.value.hint)


@pytest.mark.parametrize(
    "text", ["c > 1", "xs[0] == 5", "square > n", "add(i, 1) > 2", "[1].map(|one| one + k)[0] > 1"]
)
def test_a_breakpoint_may_name_what_any_function_has(timeline: Timeline, text: str):
    assert str(ProgramBreakpoints(Player(timeline)).add(f"if {text}")) == f"1: if {text}"


# ---------------------------------------------------------------- hostile
def test_a_journal_with_a_row_that_cannot_be_read_is_corrupt(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run('print("a");')
    with contextlib.closing(sqlite3.connect(recorded.path)) as base, base:
        base.execute('UPDATE "run/journal" SET data = x\'c1\' WHERE seq = (SELECT min(seq) FROM "run/journal")')
    with pytest.raises(Corrupt):
        recorded.timeline()


def test_a_program_that_is_gone_is_said(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run('print("a");')
    with contextlib.closing(sqlite3.connect(recorded.path)) as base, base:
        base.execute("DELETE FROM blobs")
    with pytest.raises(StoreError, match="the program of run run"):
        recorded.timeline()


@pytest.mark.timed
def test_huge_values_are_cut():
    began = time.process_time()
    assert len(brief("x" * 50_000_000, 100)) == 100
    assert len(brief(list(range(1_000_000)), 100)) == 100
    nested: Any = []
    for _ in range(10_000):
        nested = [nested]
    assert len(brief(nested, 100)) <= 100
    circle: list[Any] = [1]
    circle.append(circle)
    assert len(brief(circle, 100)) <= 100
    assert brief({"a": 1, "b": ["x"]}) == '{a: 1, b: ["x"]}'
    within(time.process_time() - began, 0.5)


# ---------------------------------------------------------------- the screen
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 24), (40, 10), (120, 50), (8, 4), (1, 1)])
def test_a_screen_has_exactly_its_size(timeline: Timeline, width: int, height: int):
    player = Player(timeline)
    for position in (0, 5, len(timeline)):
        player.goto(position)
        lines = screen(player, width, height, colours=False, message="a message")
        assert len(lines) == max(height, 4)
        assert {len(line) for line in lines} == {max(width, 8)}


def test_a_screen_shows_what_matters(timeline: Timeline):
    player = Player(timeline)
    number = next(step.number for step in timeline.steps if step.message == "xy")
    player.goto(number)
    text = "\n".join(screen(player, 120, 40, colours=False))
    assert f"> {line_of('print(x + y)'):3} print(x + y);" in text
    for part in ('x = "x"', "[6, 20]", "worker: at receive", 'print "xy"', f"{number}/{len(timeline)}", "q quit"):
        assert part in text
    assert "\x1b[" in "\n".join(screen(player, 120, 40, colours=True))


def test_what_a_program_prints_does_nothing_to_the_terminal(tmp_path: Path):
    recorded = Recorded(tmp_path)
    recorded.run('let bad = "\\u{1b}[2J\\u{7}";\nprint(bad);\nprint("宽宽宽");')
    player = recorded.player()
    player.goto(len(player.timeline))
    lines = screen(player, 60, 20, colours=False)
    assert all(line.isprintable() for line in lines)
    assert any("宽宽宽" in line for line in lines)


WAITING = """\
fn w() {
    process::sleep(60ms);
    receive { "go" => { print("went"); } }
    receive { x => { print(x); } }
}
let p = spawn fn w();
p <- "a"; p <- "b"; p <- "c";
process::sleep(20ms);
print("sent");
p <- "go";
process::sleep(100ms);
print("end");
"""


def test_unread_messages_wait_in_the_mailbox(tmp_path: Path):
    """From the send on; then they are kept for the next receive, and the one that took a message says so."""
    recorded = Recorded(tmp_path)
    assert recorded.run(WAITING) == ["sent", "went", "a", "end"]
    player = recorded.player()
    steps = player.timeline.steps
    worker = next(pid for pid in player.timeline.processes if pid != "main")
    sends = [step.number for step in steps if step.kind == "send"]
    seen = []
    for number in sends:
        player.goto(number + 1)
        seen.append(player.mailbox(worker))
    assert seen == [["a"], ["a", "b"], ["a", "b", "c"], ["a", "b", "c", "go"]]
    received = [step for step in steps if step.kind == "receive"]
    assert [step.what for step in received] == ["a message comes"] * 3 + ["receive"]
    assert received[0].result == '"a" stays in the mailbox'
    assert received[-1].result == '"go"'
    player.goto(next(step.number for step in steps if step.message == "went") + 1)
    assert player.mailbox(worker) == ["b", "c"]
    player.goto(sends[0] + 1)
    assert player.mailbox(worker) == ["a"]
    player.goto(len(steps))
    assert player.mailbox(worker) == []  # it has ended


TALKING = """\
agent M { model "sim/script" memory conversation }
agent A { model "sim/script" }
let m = spawn M supervised by { strategy restart max_restarts 3 window 60s };
let a = spawn A;
print(m <- "one");
print(a <- "apart");
print(m <- "two");
"""


def test_agents_can_be_looked_at(tmp_path: Path):
    """What was said so far, forwards and backwards; also one that knows only what it was asked."""
    recorded = Recorded(tmp_path)
    assert recorded.run(TALKING) == ["one", "apart", "two"]
    player = recorded.player()
    view = player.timeline.agents
    talker = next(pid for pid, name in view.items() if name == "M")
    caller = next(pid for pid, name in view.items() if name == "A")

    def after(line: str) -> int:
        return next(step.number for step in player.timeline.steps if step.kind == "print" and step.message == line) + 1

    assert player.agents == []
    player.goto(after("one"))
    assert player.agents == [talker, caller]
    first_turn = [("user", "one"), ("assistant", "one")]
    talker_state = player.agent(talker)
    assert talker_state is not None
    assert (talker_state.name, talker_state.state, talker_state.told, talker_state.waiting) == (
        "M",
        "waits",
        first_turn,
        [],
    )
    assert player.answers(caller) == []
    player.goto(after("two"))
    talker_state = player.agent(talker)
    assert talker_state is not None
    assert talker_state.told == [*first_turn, ("user", "two"), ("assistant", "two")]
    assert [step.message for step in player.answers(caller)] == ["apart"]
    player.goto(after("one"))
    talker_state = player.agent(talker)
    assert talker_state is not None
    assert talker_state.told == first_turn


def test_agents_that_were_not_asked_are_there_from_their_spawn_on(tmp_path: Path):
    """Also where the run was over before their guards had begun them."""
    recorded = Recorded(tmp_path)
    recorded.run('agent A { model "sim/script" }\nlet a = spawn A; let b = spawn A; let c = spawn A;\nprint("x");')
    player = recorded.player()
    seen = []
    for step in list(player.timeline.steps):
        if step.kind == "spawn":
            player.goto(step.number + 1)
            seen.append(player.agents)
    assert seen == [["p0"], ["p0", "p1"], ["p0", "p1", "p2"]]
    agent = player.agent("p2")
    assert agent is not None
    assert (agent.name, agent.state, agent.told) == ("A", "waits", [])
    assert player.timeline.agents == dict.fromkeys(seen[-1], "A")


CALLS = {
    "workers": """
fn ask(boss, n) { boss <- (first <- "hello" + n); }
let boss = process::self();
spawn fn ask(boss, "1"); spawn fn ask(boss, "2");
receive { x => { print(x); } } receive { x => { print(x); } }
""",
    "ahead": 'let x = first <- "x"; let y = first <- "y"; print(x + y);',
    "parallel": 'parallel { let x = first <- "x"; let y = first <- "y"; } print(x + y);',
    "stream": 'for piece in first <~ "some words" { print(piece); }',
    "stopped": 'print("x"); print(first <- "never");',
    "stopped parallel": 'parallel { let x = first <- "never"; let y = first <- "never"; } print(x + y);',
    "stopped ahead": 'let x = first <- "never"; let y = first <- "never2"; print(x + y);',
    "stopped stream": 'for piece in first <~ "never" { print(piece); }',
}


@pytest.mark.parametrize("kind", CALLS)
def test_only_the_agent_that_was_asked_answers(tmp_path: Path, kind: str):
    """And not another one of the same declaration; also of calls that were under way when the run was stopped."""

    def model(request: Request) -> Any:
        asked = request.messages[-1].text
        return Reply.from_data({"text": asked, "first_s": 60.0 if asked.startswith("never") else 0.02})

    recorded = Recorded(tmp_path)
    agents = 'agent A { model "sim/script" }\nlet first = spawn A; let second = spawn A;\n'
    recorded.run(agents + CALLS[kind], model=model, stop_after_s=1.0 if kind.startswith("stopped") else None)
    aside = recorded.timeline().agent_history
    states = {"p0": set(), "p1": set()}
    for row in recorded.rows():
        for pid in states:
            agent = aside.agent(pid, row.seq)
            states[pid] |= {agent.state} if agent is not None else set()
    assert "answers a call" in states["p0"]
    assert states["p1"] == {"waits"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_question_that_is_under_way_is_shown(tmp_path: Path):
    """A run that was killed while an agent was at work, and another question waited its turn."""
    source = """
agent M { model "claude-sonnet-4-20250514" memory conversation }
let m = spawn M;
fn later() { process::sleep(300ms); print("before"); m <- "next"; }
print(m <- "quickly");
spawn fn later();
m <- "slowly";
"""
    with Provider() as provider:
        scene = Scene(tmp_path, source, provider)

        def is_time() -> bool:
            return provider.asked >= 2 and "before" in scene.output

        assert scene.life(None, kill_when=is_time) is None
    with Runs(scene.db) as runs:
        player = Player(read(runs["scene"]))
    player.goto(len(player.timeline))
    (pid,) = player.agents
    agent = player.agent(pid)
    assert agent is not None
    assert agent.told == [("user", "quickly"), ("assistant", "[quickly] (1)"), ("user", "slowly")]
    assert agent.state == "answers"
    assert agent.waiting == ["next"]


def test_a_process_that_was_started_again_is_found_by_the_pid_that_programs_know(tmp_path: Path):
    recorded = Recorded(tmp_path)
    source = """
fn w(main) { main <- "up"; receive { "fall" => { throw Broken("as told"); }, text => { main <- text; } } }
let p = spawn fn w(process::self()) supervised by { strategy restart max_restarts 3 window 60s };
receive { "up" => {} }
p <- "fall";
receive { "up" => {} }
p <- "well";
receive { text => { print(text); } }
"""
    assert recorded.run(source) == ["well"]
    player = recorded.player()
    player.goto(len(player.timeline))
    workers = [pid for pid, facts in player.timeline.processes.items() if facts.function == "w"]
    guard = player.facts(workers[0]).known_as
    assert guard not in player.pids
    assert player.process(guard) == workers[-1] != workers[0]
