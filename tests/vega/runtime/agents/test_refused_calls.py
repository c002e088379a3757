"""Calls that came to nothing: the next life of a run takes that from the journal, at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lyra.models.provider import Request
from lyra.models.sim import SimProvider
from lyra.vega.replay.player import Player
from lyra.vega.runtime.agents import slot
from tests.vega.recorded import Recorded
from tests.vega.support import Never, Seen

AGENTS = """
agent A { model "sim/script" }
agent T { model "sim/script" timeout 100ms }
agent M { model "sim/script" memory conversation }
agent N { model "sim/script" concurrency 1 }
agent C { model "sim/script" memory conversation concurrency 1 }
let a = spawn A; let t = spawn T; let m = spawn M; let n = spawn N; let c = spawn C;
fn keep(who) { print(who <- "never"); }
fn read(who) { for piece in who <~ "never" { print(piece); } }
"""
LATE = "try {{ {} }} catch DeadlineExceeded(reason) {{ print(reason); }}"
CALLS = {
    "a call": 'print(a <- "never" timeout 100ms);',
    "a call with the agent's time": 'print(t <- "never");',
    "a conversation": 'print(m <- "never" timeout 100ms);',
    "a stream": 'print(await (a <~ "never" timeout 100ms));',
    "a stream of a conversation": 'print(await (m <~ "never" timeout 100ms));',
    "side by side": 'parallel { let p = a <- "p"; let q = m <- "never" timeout 100ms; } print(p + q);',
    "ahead of its turn": 'let p = a <- "p"; let q = a <- "never" timeout 100ms; print(p + q);',
    "a turn": 'spawn fn keep(n); process::sleep(20ms); print(n <- "x" timeout 100ms);',
    "a turn of a conversation": 'spawn fn keep(c); process::sleep(20ms); print(c <- "x" timeout 100ms);',
    "a turn behind a stream": 'spawn fn read(c); process::sleep(20ms); print(c <- "x" timeout 100ms);',
    "the turn of a stream": 'spawn fn read(c); process::sleep(20ms); print(await (c <~ "x" timeout 100ms));',
}
GONE = """
let s = spawn M supervised by { strategy restart max_restarts 0 window 60s };
for piece in s <~ "one" { print(piece); }
try { print(s <- "fail"); } catch AgentFailed(reason) { print(reason); }
try { for piece in s <~ "two" { print(piece); } } catch AgentFailed(reason) { print(reason); }
try { print(s <- "three"); } catch AgentFailed(reason) { print(reason); }
"""
DEADLOCK = """
for piece in c <~ "b c d" {
    try { print(c <- piece); } catch Deadlock { print("dead " + piece); }
    try { print(await (c <~ piece)); } catch Deadlock { print("dead stream " + piece); }
}
"""
END = 'print(a <- "x"); print(a <- "never to the end");'


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it, and time-outs come after a minute from then on: a call that waits for one again is seen."""
    begin = slot._Clock.__init__
    return lambda: monkeypatch.setattr(slot._Clock, "__init__", lambda clock, *_: begin(clock, 60.0, None))


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_ran_out_of_time_is_not_waited_for_again(
    recorded: Recorded, no_time_passes: Any, what: str, sequential: bool
):
    """Nor made again: with its effect under way, or still waiting for its turn."""
    source = AGENTS + LATE.format(CALLS[what]) + END
    never = Never()
    before = recorded.run(source, model=never, stop_when=never.reached, sequential=sequential)
    assert ("did not answer within 0.1 s" in before[0], before[1:]) == (True, ["x"])
    no_time_passes()
    model = Seen()
    after = recorded.resume(model=model, stop_after_s=8.0)
    assert [line for line in after if line != "never"] == ["never to the end"]  # without what `keep` and `read` print
    assert "x" not in [request.messages[-1].text for request in model.requests]


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("refused", [GONE, DEADLOCK], ids=["gone", "deadlock"])
def test_a_call_that_was_refused_is_refused_again(recorded: Recorded, refused: str, sequential: bool):
    """A call to an agent that is gone, or one that would wait for itself, does not wait for the others to come back."""
    never = Never()
    before = recorded.run(AGENTS + refused + END, model=never, stop_when=never.reached, sequential=sequential)
    assert len(before) >= 4
    model = Seen()
    assert recorded.resume(model=model, stop_after_s=8.0) == ["never to the end"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("refused", [LATE.format(CALLS["a turn behind a stream"]), GONE, DEADLOCK])
def test_a_replay_shows_what_was_refused(recorded: Recorded, refused: str):
    lines = recorded.run(AGENTS + refused + 'print(a <- "x");', model=Never())
    timeline = recorded.timeline()
    assert not timeline.notes
    player = Player(timeline)
    player.goto(len(timeline))
    assert not player.diverged
    assert recorded.output() == lines


HALF = """
for piece in c <~ "b c d" {
    print(piece);
    if piece == "b " { print(a <- PAUSE); }
    if piece == "c " {
        try { print(c <- piece); } catch Deadlock { print("dead"); }
        try { print(await (c <~ piece)); } catch Deadlock { print("dead stream"); }
    }
}
print(c <- "free again");
"""


@pytest.mark.parametrize("memory", ["memory conversation", ""])
@pytest.mark.parametrize("sequential", [False, True])
def test_a_stream_that_is_half_read_has_its_agents_turn_in_the_next_life_too(
    recorded: Recorded, memory: str, sequential: bool
):
    source = AGENTS.replace(
        'agent C { model "sim/script" memory conversation', f'agent C {{ model "sim/script" {memory}'
    )
    calm = recorded.run(source + HALF.replace("PAUSE", '"x"'), "calm", model=Never(), sequential=sequential)
    assert calm[3:5] == ["dead", "dead stream"]
    recorded.run(source + HALF.replace("PAUSE", '"never x"'), model=Never(), stop_after_s=0.5, sequential=sequential)
    recorded.resume(model=Seen(), stop_after_s=8.0)
    assert [line.replace("never ", "") for line in recorded.output()] == calm


class Heavy(SimProvider):
    """Its libraries take half a second to load."""

    def __init__(self, script: Any) -> None:
        super().__init__(script=script)
        self.did: list[str] = []
        HEAVY.append(self)

    def load(self) -> None:
        self.did.append("load")
        time.sleep(0.5)

    def stream(self, request: Request) -> Any:
        self.did.append("ask")
        return super().stream(request)


HEAVY: list[Heavy] = []


@pytest.mark.parametrize("call", ["print(a <- {} timeout 300ms);", "print(await (a <~ {} timeout 300ms));"])
def test_what_a_first_call_loads_is_not_part_of_its_time(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, call: str
):
    """In no life: else the next one would run out of time where the one before did not."""
    monkeypatch.setattr("tests.vega.recorded.SimProvider", Heavy)
    source = AGENTS + call.format('"x"') + call.format('"never"')
    recorded.run(source, model=Never(), stop_after_s=0.7)
    recorded.resume(model=Seen())
    assert recorded.output() == ["x", "never"]
    for heavy in HEAVY[-2:]:
        assert (heavy.did[0], heavy.did.count("load")) == ("load", 1)
