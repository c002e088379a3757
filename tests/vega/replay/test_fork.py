"""A run once more with one reply changed: the rest from its journal where it is the same, refused or real where not."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.store.space import Space
from lyra.vega.durable.runs import Runs
from lyra.vega.replay.fork import RecordedAnswers, change_at, copy_journal, difference, fresh_name
from lyra.vega.replay.player import Player
from lyra.vega.replay.timeline import Timeline
from tests.cases import ALL
from tests.vega.recorded import TEAM, Recorded
from tests.vega.support import FAILING, Never, Seen

ASKS = """\
agent A { model "sim/script" }
let a = spawn A;
let first = a <- "first";
print(first);
if first == "yes" { print(a <- "something new"); }
print(a <- "last");
"""


DOCUMENT = """
agent Reviewer { model "sim/script" }
agent Summarizer { model "sim/script" }
let reviewer = spawn Reviewer;
let summarizer = spawn Summarizer;
let review1 = reviewer <- "one";
let review2 = reviewer <- "two";
let review3 = reviewer <- "three";
print(summarizer <- review1 + review2 + review3);
"""
LOOP = """
agent R { model "sim/script" }
let r = spawn R;
fn both(q) {
    let a = r <- q + "a";
    let b = r <- q + "b";
    return a + b;
}
let out = [];
for i in [1, 2, 3] {
    let x = r <- "x${i}";
    let y = both("y${i}");
    out.push(x + y);
}
print(out);
"""
OVERLAPPING = {
    "document": DOCUMENT,
    "loop": LOOP,
    "nested": """
agent R { model "sim/script" }
let r = spawn R;
fn inner(q) { let a = r <- q + "a"; let b = r <- q + "b"; return a + b; }
fn outer(q) { let x = inner(q + "1"); let own = r <- q; let y = inner(q + "2"); return [x, own, y]; }
let p = outer("p");
let m = r <- "m";
let q = outer("q");
print(p); print(m); print(q);
""",
    "the same": """
agent R { model "sim/script" }
let r = spawn R;
fn ask() { let a = r <- "same"; let b = r <- "same"; return [a, b]; }
let a = r <- "same"; let b = ask(); let c = r <- "same"; let d = ask();
print([a, b, c, d]);
print(r <- "same");
""",
    "side by side": """
agent R { model "sim/script" }
agent M { model "sim/script" memory conversation }
let r = spawn R; let m = spawn M; let n = spawn M;
fn f(q) { return r <- q; }
parallel { let a = m <- "a"; let b = f("b"); let c = n <- "c"; let d = r <- "d"; }
print([a, b, c, d]);
parallel { let e = n <- "e"; let g = m <- "g"; }
print([e, g]);
""",
    "streams": """
agent R { model "sim/script" }
agent M { model "sim/script" memory conversation }
let r = spawn R; let m = spawn M;
print(m <- "d");
let a = r <~ "a"; let b = m <~ "b"; let c = r <~ "c";
for one in c { print(one); }
for one in a { print(one); }
for one in b { print(one); }
""",
    "workers": """
agent R { model "sim/script" }
let r = spawn R;
fn work(main, q) { let a = r <- q + "1"; let b = r <- q + "2"; main <- [q, a, b]; }
let me = process::self();
for q in ["u", "v"] { spawn fn work(me, q); }
let got = {};
for i in [1, 2] { receive { [q, a, b] => { got[q] = a + b; } } }
print(got["u"]); print(got["v"]);
""",
    "failing": """
agent R { model "sim/script" }
let r = spawn R;
let xs = [];
for q in ["k", "fail", "l"] {
    let a = r <- q + "1";
    try { let b = r <- q; xs.push(a + b); } catch AgentFailed { xs.push(a + " no"); }
}
print(xs);
let more = r <- "more?";
if more == "CHANGED" { print(more + (r <- "then")); }
""",
}


class Numbered(Seen):
    """A model that tells how often it was asked the same, and says `CHANGED` once. What stands first takes longest."""

    def __init__(self, changed: str = "") -> None:
        super().__init__()
        self._changed = changed
        self._times: dict[str, int] = {}

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        asked = request.messages[-1].text
        self._times[asked] = self._times.get(asked, 0) + 1
        reply = f"{asked}.{self._times[asked]}"
        if reply == self._changed:
            return Reply.from_data({"text": "CHANGED"})
        if asked == "fail":
            return FAILING
        return Reply.from_data({"text": reply, "first_s": max(0.0, 0.02 - 0.002 * len(self.requests))})


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("kind", OVERLAPPING)
def test_every_reply_of_calls_that_overlap_is_changed_and_no_other(recorded: Recorded, kind: str, sequential: bool):
    """For each effect that a model answered, the fork prints what the program prints where the model says so;
    `make test` takes every third one."""
    source = OVERLAPPING[kind]
    first = Numbered()
    recorded.run(source, model=first, sequential=sequential)
    timeline = recorded.timeline()
    assert not timeline.notes
    calls = [step for step in timeline.steps if step.agent]
    assert len(calls) == len(first.requests)
    replies = [reply_of(recorded, timeline, step.number) for step in calls]
    assert len(set(replies)) == len(calls)
    for step, reply in list(zip(calls, replies, strict=True))[:: 1 if ALL else 3]:
        if kind == "the same":  # who asks first is another one in each run
            expected = [line.replace(reply, "CHANGED") for line in recorded.output()]
        else:
            expected = recorded.run(source, f"else{step.number}", model=Numbered(reply), sequential=sequential)
        book = fork(recorded, step.number, "CHANGED", name=f"fork{step.number}")
        recorded.go_on(f"fork{step.number}", book, is_live=True, model=Numbered())
        forked = recorded.output(f"fork{step.number}")
        assert "".join(forked) == "".join(expected), step.what
        assert "CHANGED" in "".join(forked), step.what


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("kind", ["document", "loop", "nested", "failing"])
def test_effects_are_in_the_order_of_the_program(recorded: Recorded, kind: str, sequential: bool):
    """However early they were asked and answered: as a run asks that makes every call in its turn. What a call cost is
    its own, and played in that order every process comes to the same effects."""
    in_turn = Numbered()
    recorded.run(OVERLAPPING[kind], "turns", model=in_turn, sequential=True)
    recorded.run(OVERLAPPING[kind], model=Numbered(), sequential=sequential)
    timeline = recorded.timeline()
    calls = [step for step in timeline.steps if step.agent]
    assert [step.message for step in calls] == [request.messages[-1].text for request in in_turn.requests]
    assert [step.usage["llm_calls"] for step in calls if not step.error] == [1] * sum(not step.error for step in calls)
    assert all(step.seq <= after.seq for step, after in pairwise(timeline.steps))
    functions = [step for step in timeline.steps if step.kind == "ahead_take" and not step.agent]
    for step in functions:
        (child,) = step.children
        inside = [step_.number for step_ in timeline.steps if step_.pid == child]
        before = max(step_.number for step_ in timeline.steps[: step.number] if step_.pid == step.pid)
        assert before < inside[0] < inside[-1] < step.number
    player = Player(timeline)
    player.goto(len(timeline))
    assert not player.diverged


PRICED = """
[price]
input_usd_per_mtok = 1000000
output_usd_per_mtok = 1000000
[[replies]]
text = 'yes'
"""
SPENDING = """
agent A {{ model "{model}" max_tokens 5 }}
agent M {{ model "{model}" max_tokens 5 memory conversation }}
let a = spawn A; let m = spawn M;
print(a <- "first");
try {{
    session budget $90 {{
        for i in list::range(0, 5) {{
            let x = a <- "n${{i}}";
            let y = m <- "m${{i}}";
            print("${{i}} ${{budget::used()}} ${{budget::remaining()}}");
        }}
        let b = a <- "left"; let c = a <- "right";
        print(budget::used());
    }}
}} catch BudgetExceeded {{ print("over"); }}
"""


@pytest.mark.parametrize("message", ["first", "n2", "m2", "right"])
def test_a_fork_has_spent_what_the_run_had(recorded: Recorded, tmp_path: Path, message: str):
    """Also in a session, by calls that the journal answers: a program that goes by its budget goes the same way. And a
    model whose name has a colon in it is changed like any other."""
    (tmp_path / "script.toml").write_text(PRICED)
    source = SPENDING.format(model=f"sim/script:{tmp_path / 'script.toml'}")
    lines = recorded.run(source)
    assert len(lines) == 7
    assert [line.split()[1] for line in lines[1:6]] != ["0"] * 5
    assert recorded.go_on("fork", fork(recorded, number_of(recorded, message), "yes")) == ""
    assert recorded.output("fork") == lines
    with Runs(recorded.path) as runs:
        assert runs["fork"].spent == runs["run"].spent


def reply_of(recorded: Recorded, timeline: Timeline, number: int) -> str:
    """What a fork says that an effect gave; a failure by its question."""
    with Runs(recorded.path) as runs:
        was = change_at(runs["run"], timeline, number, "x", is_error=False).was
    step = timeline.steps[number]
    assert was == "refused" or was.startswith(f"{step.message}.")
    if step.result and step.kind in ("send", "ahead_take"):
        assert step.result == f'"{was}"'
    return "fail.1" if was == "refused" else was


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def number_of(recorded: Recorded, message: str) -> int:
    return next(step.number for step in recorded.timeline().steps if step.agent and step.message == message)


def fork(recorded: Recorded, number: int, text: str, *, name: str = "fork", is_error: bool = False) -> RecordedAnswers:
    """The beginning of a fork in the store."""
    timeline = recorded.timeline()
    with Runs(recorded.path) as runs:
        run = runs["run"]
        change = change_at(run, timeline, number, text, is_error=is_error)
        space = Space(recorded.path, name)
        try:
            return copy_journal(run, space, change, number, time.time())
        finally:
            space.close()


@pytest.mark.parametrize("message", ["one", "x", "y", "again", "more"])
def test_a_changed_reply_changes_what_follows_from_it_alone(recorded: Recorded, message: str):
    """Of calls, conversations and calls beside each other; no model is asked anything, and the run stays as it was."""
    lines = recorded.run(TEAM)
    before = recorded.rows()
    book = fork(recorded, number_of(recorded, message), "CHANGED")
    model = Seen()
    assert recorded.go_on("fork", book, model=model) == ""
    assert not model.requests
    assert not book.new
    lines = [line.replace(message, "CHANGED") if line in (message, "xy") else line for line in lines]
    assert recorded.output("fork") == lines
    assert recorded.rows() == before


@pytest.mark.parametrize("memory", ["conversation", "window(4)"])
@pytest.mark.parametrize("is_live", [False, True])
def test_a_conversation_that_went_another_way_is_another_question(recorded: Recorded, memory: str, is_live: bool):
    """What its agent is asked next has the changed reply in it: no model has answered that before."""
    recorded.run(
        f'agent A {{ model "sim/script" }}\nagent M {{ model "sim/script" memory {memory} }}\n'
        'let a = spawn A; let m = spawn M;\nprint(m <- "title?"); print(a <- "other"); print(m <- "go on");'
    )
    book = fork(recorded, number_of(recorded, "title?"), "OTHER")
    model = Seen()
    error = recorded.go_on("fork", book, is_live=is_live, model=model)
    assert book.new == ["model:M:sim/script"]
    if is_live:
        assert error == ""
        (request,) = model.requests
        assert [message.text for message in request.messages] == ["title?", "OTHER", "go on"]
        assert recorded.output("fork") == ["OTHER", "other", "go on"]
    else:
        assert "did not ask" in error
        assert (recorded.output("fork"), model.requests) == (["OTHER", "other"], [])


def test_a_stream_may_be_changed_too(recorded: Recorded):
    recorded.run(TEAM)
    assert recorded.go_on("fork", fork(recorded, number_of(recorded, "three four"), "five")) == ""
    assert recorded.output("fork")[4:6] == ["five", "20"]


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("memory", ["none", "conversation", "window(4)"])
def test_of_a_changed_stream_no_piece_is_left(recorded: Recorded, memory: str, sequential: bool):
    """Also where the program had read some before the model was done; what it asked meanwhile is answered as it was."""
    source = f"""
agent A {{ model "sim/script" }}
agent S {{ model "sim/script" memory {memory} }}
let a = spawn A; let s = spawn S;
print(a <- "first");
for piece in s <~ "one two three" {{ print(piece); print(a <- "meanwhile"); }}
print(await (s <~ "four five"));
print(a <- "last");
"""
    slow = Seen(lambda request: Reply.from_data({"text": request.messages[-1].text, "chunk_s": 0.02}))
    lines = recorded.run(source, model=slow, sequential=sequential)
    assert lines == ["first", "one ", "meanwhile", "two ", "meanwhile", "three", "meanwhile", "four five", "last"]
    model = Seen()
    assert recorded.go_on("fork", fork(recorded, number_of(recorded, "four five"), "six"), model=model) == ""
    assert recorded.output("fork") == [*lines[:7], "six", "last"]
    recorded.go_on("second", fork(recorded, number_of(recorded, "one two three"), "none", name="second"), is_live=True)
    assert recorded.output("second") == ["first", "none", "meanwhile", "four five", "last"]
    assert not model.requests


def test_what_is_new_is_refused(recorded: Recorded):
    """With a hint; an error like any other, so the fork ends there unless the program catches it."""
    recorded.run(ASKS)
    book = fork(recorded, number_of(recorded, "first"), "yes")
    model = Seen()
    error = recorded.go_on("fork", book, model=model)
    assert "did not ask" in error
    assert book.new
    assert not model.requests
    assert recorded.output("fork") == ["yes"]


@pytest.mark.parametrize("memory", ["none", "conversation"])
@pytest.mark.parametrize("sequential", [False, True])
def test_a_call_that_was_not_answered_in_time_is_nothing_new(recorded: Recorded, memory: str, sequential: bool):
    """It ends as it did, and at once; what it cost is spent here too. What is asked after it is answered."""
    source = f"""
agent A {{ model "sim/script" }}
agent M {{ model "sim/script" memory {memory} }}
let a = spawn A; let m = spawn M;
print(a <- "one");
try {{ print(m <- "never" timeout 300ms); }} catch DeadlineExceeded(e) {{ print(e); }}
try {{ print(m <- "never again" timeout 300ms); }} catch DeadlineExceeded(e) {{ print(e); }}
print(m <- "last" timeout 20s);
"""
    late = "M did not answer within 0.3 s"
    assert recorded.run(source, model=Never(), sequential=sequential) == ["one", late, late, "last"]
    book = fork(recorded, number_of(recorded, "one"), "CHANGED")
    model = Seen()
    assert recorded.go_on("fork", book, model=model) == ""
    assert recorded.output("fork") == ["CHANGED", late, late, "last"]
    assert not book.new
    assert not model.requests
    assert not recorded.timeline("fork").notes
    with Runs(recorded.path) as runs:
        assert runs["fork"].spent == runs["run"].spent


def test_a_call_without_a_time_is_not_late(recorded: Recorded):
    """What the agent would have said is not known."""
    recorded.run(
        'agent A { model "sim/script" }\nlet a = spawn A;\nlet first = a <- "one";\n'
        'try { if first == "one" { a <- "never" timeout 200ms; } else { a <- "never"; } }\n'
        "catch Error(e) { print(e); }",
        model=Never(),
    )
    book = fork(recorded, number_of(recorded, "one"), "CHANGED")
    recorded.go_on("fork", book)
    assert book.new == ["model:A:sim/script"]


def test_a_call_that_was_given_up_before_its_time_was_over_is_new(recorded: Recorded):
    """Here by the end of the run."""
    source = """
agent A { model "sim/script" }
let a = spawn A;
fn ask(main) { main <- (a <- "never" timeout 30s); }
let first = a <- "one";
spawn fn ask(process::self());
process::sleep(100ms);
if first != "one" { receive { x => { print(x); } } }
print("end");
"""
    assert recorded.run(source, model=Never()) == ["end"]
    book = fork(recorded, number_of(recorded, "one"), "other")
    assert recorded.go_on("fork", book, is_live=True) == ""
    assert book.new == ["model:A:sim/script"]
    assert recorded.output("fork") == ["never", "end"]


def test_what_is_new_is_done_where_that_is_allowed(recorded: Recorded):
    recorded.run(ASKS)
    book = fork(recorded, number_of(recorded, "first"), "yes")
    model = Seen()
    assert recorded.go_on("fork", book, is_live=True, model=model) == ""
    assert [request.messages[-1].text for request in model.requests] == ["something new"]
    assert recorded.output("fork") == ["yes", "something new", "last"]


def test_forks_ask_under_keys_of_their_own(recorded: Recorded):
    """Two that ask the same new thing are two questions to a provider that tells questions by their keys."""
    recorded.run(ASKS)
    model = Seen()
    for name in ("fork", "other"):
        recorded.go_on(name, fork(recorded, number_of(recorded, "first"), "yes", name=name), is_live=True, model=model)
    keys = [request.idempotency_key for request in model.requests]
    assert len(keys) == len(set(keys)) == 2


def test_a_reply_may_become_an_error(recorded: Recorded):
    recorded.run(
        'agent A { model "sim/script" }\nlet a = spawn A;\ntry { print(a <- "x"); } catch AgentFailed(e) { print(e); }'
    )
    assert recorded.go_on("fork", fork(recorded, number_of(recorded, "x"), "it broke", is_error=True)) == ""
    assert recorded.output("fork") == ["it broke"]


def test_effects_of_the_outside_are_changed_too(recorded: Recorded, tmp_path: Path):
    (tmp_path / "note.txt").write_text("old")
    recorded.run('let text = file::read("note.txt");\nprint(text);\nprint(file::read("note.txt"));')
    number = next(step.number for step in recorded.timeline().steps if "read" in step.kind)
    (tmp_path / "note.txt").unlink()
    book = fork(recorded, number, "new")
    assert recorded.go_on("fork", book) == ""
    assert recorded.output("fork") == ["new", "old"]
    assert book.taken == 1


def test_a_fork_is_a_run_like_any_other(recorded: Recorded):
    """It can be listed, replayed, and forked again; and says what it is a fork of."""
    recorded.run(ASKS)
    number = number_of(recorded, "first")
    recorded.go_on("fork", fork(recorded, number, "no"))
    with Runs(recorded.path) as runs:
        facts: dict[str, Any] = runs["fork"].began
        assert (facts["id"], facts["fork_of"], facts["forked_at"]) == ("fork", "run", number)
        assert runs["fork"].state == "finished"
        assert fresh_name(runs.names, "run") == "run-fork-1"
    old, new = recorded.timeline(), recorded.timeline("fork")
    assert not new.notes
    before, after = difference(old, new, number)
    assert before is not None
    assert after is not None
    assert (before.message, after.message) == ("first", "no")
    assert difference(old, old, number) == (None, None)


@pytest.mark.parametrize(
    ("number", "message"),
    [(999, "no effect 999"), (0, r"0 \(start main\) has no reply"), (2, "no reply"), (-1, "no effect")],
)
def test_what_has_no_reply_cannot_be_changed(recorded: Recorded, number: int, message: str):
    recorded.run('let me = process::self();\nme <- "a";\nreceive { x => {} }')
    with pytest.raises(ConfigError, match=message):
        fork(recorded, number, "x")


def test_a_name_that_is_taken_is_refused(recorded: Recorded):
    recorded.run(ASKS)
    number = number_of(recorded, "first")
    fork(recorded, number, "no")
    with pytest.raises(ConfigError, match="already"):
        fork(recorded, number, "no")
