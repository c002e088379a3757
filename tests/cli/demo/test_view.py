"""The demo's fold, its tree and its counting, on rows made by hand."""

from __future__ import annotations

import io
import re
from collections import Counter

import pytest
from rich.console import Console

from lyra.cli.demo.command import DemoScreen, newest_in_place
from lyra.cli.demo.report import Evidence, lines, report
from lyra.core.budgets.money import Money
from lyra.core.event import Event
from lyra.observe.history.processes import ProcessTable


def plan(*children, strategy="restart", max_restarts=1):
    specs = [{"id": name, "restart": restart} for name, restart in children]
    return [{"strategy": strategy, "max_restarts": max_restarts, "window_s": 60.0, "children": specs}]


def journal(*rows):
    return [Event(seq, 0.0, pid, kind, data) for seq, (pid, kind, data) in enumerate(rows, 1)]


def created(pid, name, parent="", args=None, **more):
    return pid, "process.created", {"program": f"m:{name}", "name": name, "parent": parent, "args": args or [], **more}


def ended(pid, reason):
    return pid, "process.terminated", {"reason": reason}


ROOT = created("r", "root", args=plan(("a", "permanent"), ("b", "temporary")))
RESTARTED = (ROOT, created("a1", "a", "r"), created("b1", "b", "r"), ended("a1", "error"), created("a2", "a", "r"))


def counted(rows, *, killed_at, keys=(), done=(), performed=(), limit="$1"):
    evidence = Evidence(9, killed_at, set(done), list(performed))
    result = {"findings": 1, "skipped": 0, "published": True}
    return report(evidence, journal(*rows), list(keys), Counter(), result=result, limit=Money.parse(limit))


# ---------------------------------------------------------------- counting
def test_restarts_are_counted_on_both_sides_of_the_kill():
    """The same rows, killed before or after the restart."""
    for killed_at, before, after in ((4, 0, 1), (5, 1, 0)):
        root = counted(RESTARTED, killed_at=killed_at)["supervision"]["supervisors"]["root"]
        assert (root["restarts_before_the_kill"], root["restarts_after_the_kill"]) == (before, after)
        assert root["gave_up"] == 0


def test_a_demo_without_restarts_says_so():
    """It is a problem if nothing crashed where something should have."""
    told = counted((ROOT, created("a1", "a", "r")), killed_at=1)["problems"]
    assert told == ["nothing was restarted before the kill", "nothing was restarted after the kill"]


def test_more_restarts_than_allowed_are_a_problem():
    """A supervisor that restarts past its limit is found out."""
    rows = (*RESTARTED, ended("a2", "error"), created("a3", "a", "r"))
    assert "root restarted 2 times, of 1" in counted(rows, killed_at=5)["problems"]


def test_who_gives_up():
    """It ends by itself with a crashed child; one that is told to end has not given up."""
    crashed = (*RESTARTED, ended("a2", "error"))
    stopped = (*crashed, ("r", "process.stopping", {"reason": "shutdown"}))
    for rows, gave_up in ((crashed, 1), (stopped, 0)):
        told = counted((*rows, ended("r", "shutdown")), killed_at=5)["supervision"]["supervisors"]["root"]
        assert told["gave_up"] == gave_up


def test_siblings_that_are_stopped_are_no_restart_of_their_own():
    """With rest_for_one the later children start again too; that counts once."""
    stop = ("b1", "process.stopping", {"reason": "shutdown"})
    rows = (*RESTARTED[:4], stop, ended("b1", "shutdown"), created("a2", "a", "r"), created("b2", "b", "r"))
    supervision = counted(rows, killed_at=3)["supervision"]
    assert supervision["supervisors"]["root"]["restarts_after_the_kill"] == 1
    assert supervision["children"]["b"] == {"restart": "temporary", "starts": 2, "crashes": 0}


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"keys": ["x:0", "x:0"]}, "1 effects were performed again"),
        ({"keys": ["x:0"], "done": ["x:0"]}, "1 effects were performed again"),
        ({"limit": "$0"}, "$0.000005 was spent of $0.00"),
    ],
)
def test_broken_promises_are_problems(counts, problem):
    """A key performed twice, a finished effect performed after the kill, money over the limit."""
    paid = ("a1", "effect.finished", {"key": 0, "usage": {"usd": 5}})
    assert problem in counted((*RESTARTED, paid), killed_at=4, **counts)["problems"]


def test_the_last_lines_fit_a_terminal():
    """80 columns, every supervisor and every child that was started again."""
    told = {**counted(RESTARTED, killed_at=4), "seconds": 1.0, "seed": 1}
    shown = [f"{label:<8}  {text}" for label, text in lines(told)]
    assert max(map(len, shown)) <= 80
    assert any(line.startswith("root      one_for_one: 0 restarts before the kill, 1 after it") for line in shown)
    assert any(line.startswith("a         permanent: crashed 1 time, 2 starts under one name") for line in shown)


# ---------------------------------------------------------------- showing
def screen_of(*rows, console=None):
    table = ProcessTable()
    screen = DemoScreen(table, lambda: 1.0, console)
    for event in journal(*rows):
        screen.show(event)
    return screen, table


def test_a_restarted_process_takes_the_place_of_the_one_before():
    """The tree has one line for each place, with the newest pid."""
    _, table = screen_of(*RESTARTED)
    tree = [(depth, record.name, record.pid) for depth, record in newest_in_place(table)]
    assert tree == [(0, "root", "r"), (1, "a", "a2"), (1, "b", "b1")]


def test_a_supervisor_shows_its_restarts():
    """Restarts are counted by the supervisor's own word."""
    screen, _ = screen_of(*RESTARTED)
    screen.show(Event(0, 0.0, "r", "child.restarting", {"id": "a", "reason": "error", "starts": 1}))
    assert "root  r  running  1 restart" in screen.lines(24)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 20)])
def test_the_picture_fits(width, height):
    """Eleven processes and the last rows of the journal fit a small terminal, and use a larger one."""
    names = [f"file{number}.py" for number in range(5)]
    lead = created("p100", "lead", "r", budget={"limits": {"usd": 500_000}})
    files = [created(f"p20{n}", name, "p100", budget={"limits": {"usd": 99_999}}) for n, name in enumerate(names)]
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    question = ("p200", "interrupt.created", {"question": "?" * 200, "id": "i"})
    screen, _ = screen_of(*RESTARTED, lead, *files, question, console=console)
    start = console.file.tell()
    screen.head("kill -9")
    screen.close()
    console.file.seek(start)
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in console.file.read().splitlines()]
    assert len(screen.lines(height)) < height
    assert max(map(len, shown)) <= width
    for words in ("kill -9", "├─ a", "└─ file4.py", "interrupt.created"):
        assert any(words in line for line in shown)


def test_plain_lines_tell_of_supervisors(capsys):
    """What supervisors do has no row of its own in the journal and is told all the same."""
    screen, _ = screen_of(*RESTARTED)
    capsys.readouterr()
    screen.show(Event(0, 0.0, "r", "supervisor.gave_up", {"id": "a", "reason": "error", "starts": 2}))
    assert " ".join(capsys.readouterr().out.split()) == "1.00 s supervisor.gave_up root a crashed once too often"
