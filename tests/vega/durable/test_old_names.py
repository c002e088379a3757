"""Durable runs of earlier versions, whose journals have module paths of Lyra's own, go on and are replayed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lyra.store.space import Space
from lyra.vega.durable.runs import Runs
from lyra.vega.durable.trace import trace
from lyra.vega.replay.fork import change_at, copy_journal
from tests.kernel.conftest import an_earlier_version
from tests.vega.recorded import TEAM, Recorded

WAITS = """\
agent A { model "sim/script" }
fn worker(main, n) { while true { receive { x => { main <- x + n; } } } }
supervisor Team { child w = fn worker(process::whereis("main"), 7) child b = A }
process::register("main");
let a = spawn A supervised by { strategy restart };
let t = spawn Team;
let p = spawn fn worker(process::self(), 5) supervised by { strategy restart };
print(a <- "one");
p <- 1;
receive { r => { print(r); } }
process::sleep(1s);
p <- 2;
receive { r => { print(r); } }
print(a <- "two");
"""


def programs(recorded: Recorded) -> set[bytes]:
    """The old names in the rows of a run."""
    olds = (b"lyra.vega.runtime.driver:vega_process", b"lyra.vega.runtime.agents:agent_front")
    guard = b"lyra.kernel.supervisor:supervise"
    return {old for old in (*olds, guard) for row in recorded.rows() if old in row.data}


@pytest.mark.parametrize("sequential", [True, False])
def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sequential: bool):
    """Agents, supervised functions and a tree of supervisors, stopped in the middle."""
    recorded = Recorded(tmp_path)
    with an_earlier_version(monkeypatch):
        recorded.run(WAITS, stop_after_lines=2, sequential=sequential)
    assert recorded.output() == ["one", "6"]
    assert len(programs(recorded)) == 3
    assert recorded.resume() == ["7", "two"]


def test_a_replay_and_a_trace_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As those of a run that was made today."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Recorded(tmp_path / "old"), Recorded(tmp_path / "new")
    with an_earlier_version(monkeypatch):
        lines = old.run(TEAM, sequential=True)
    assert programs(old)
    assert new.run(TEAM, sequential=True) == lines
    assert programs(new) == set()
    steps = [[(step.kind, step.what, step.error) for step in recorded.timeline().steps] for recorded in (old, new)]
    assert steps[0] == steps[1]
    assert old.timeline().notes == new.timeline().notes
    spans = []
    for recorded in (old, new):
        with Runs(recorded.path) as runs:
            spans.append([(depth, span.kind, span.name) for depth, span in trace(runs["run"]).root.walk()])
    assert spans[0] == spans[1]


def test_a_fork_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its journal begins as a copy with the old names; what follows is answered as in the other run."""
    recorded = Recorded(tmp_path)
    with an_earlier_version(monkeypatch):
        recorded.run(TEAM, sequential=True)
    timeline = recorded.timeline()
    step = next(step for step in timeline.steps if step.agent and step.message == "again")
    with Runs(recorded.path) as runs:
        change = change_at(runs["run"], timeline, step.number, "other", is_error=False)
        space = Space(recorded.path, "fork")
        book = copy_journal(runs["run"], space, change, step.number, time.time())
        space.close()
    assert recorded.go_on("fork", book) == ""
    assert recorded.output("fork") == [*recorded.output()[:-2], "other", recorded.output()[-1]]
