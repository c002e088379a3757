"""A run once more with one reply changed: the rest from its journal where it is the same, refused or real where not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.store.space import Space
from lyra.vega.replay.fork import Book, change_at, copied_to, difference, fresh_name
from lyra.vega.runs import Runs
from tests.vega.recorded import TEAM, Recorded
from tests.vega.support import Seen

ASKS = """\
agent A { model "sim/script" }
let a = spawn A;
let first = a <- "first";
print(first);
if first == "yes" { print(a <- "something new"); }
print(a <- "last");
"""


@pytest.fixture
def made(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def number_of(made: Recorded, message: str) -> int:
    return next(step.number for step in made.timeline().steps if step.agent and step.message == message)


def fork(made: Recorded, number: int, text: str, *, name: str = "fork", is_error: bool = False) -> Book:
    """The beginning of a fork in the store."""
    timeline = made.timeline()
    with Runs(made.path) as runs:
        run = runs["run"]
        change = change_at(run, timeline, number, text, is_error=is_error)
        space = Space(made.path, name)
        try:
            return copied_to(run, space, change, number, time.time())
        finally:
            space.close()


@pytest.mark.parametrize("message", ["one", "x", "y", "again", "more"])
def test_a_changed_reply_changes_what_follows_from_it_alone(made: Recorded, message: str):
    """Of calls, conversations and calls beside each other; nobody is asked anything, and the run stays as it was."""
    lines = made.run(TEAM)
    before = made.rows()
    book = fork(made, number_of(made, message), "CHANGED")
    nobody = Seen()
    assert made.go_on("fork", book, model=nobody) == ""
    assert not nobody.requests
    assert not book.new
    lines = [line.replace(message, "CHANGED") if line in (message, "xy") else line for line in lines]
    assert "".join(made.output("fork")) == "".join(lines)  # a stream comes in one piece now
    assert made.rows() == before


TALK = """\
agent M { model "sim/script" memory conversation }
agent W { model "sim/script" memory window(4) }
agent A { model "sim/script" }
let m = spawn M;
let w = spawn W;
let a = spawn A;
print(m <- "title?");
print(w <- "other?");
print(a <- "apart");
print(m <- "go on");
print(w <- "and on");
print(a <- "at last");
"""


def _asked(model: Seen) -> list[list[str]]:
    return [[message.text for message in request.messages] for request in model.requests]


@pytest.mark.parametrize(("message", "then"), [("title?", "go on"), ("other?", "and on")])
def test_a_conversation_whose_past_was_changed_goes_on_anew(made: Recorded, message: str, then: str):
    """What it is asked after that is a new effect: refused, or asked with the past that was changed. Conversations
    that nobody touched, and calls without a past, are answered as before."""
    made.run(TALK)
    number = number_of(made, message)
    book = fork(made, number, "CHANGED")
    nobody = Seen()
    assert "did not ask" in made.go_on("fork", book, model=nobody)
    assert not nobody.requests
    assert len(book.new) == 1
    book = fork(made, number, "CHANGED", name="live")
    model = Seen(lambda request: f"new {request.messages[-1].text}")
    assert made.go_on("live", book, is_live=True, model=model) == ""
    assert _asked(model) == [[message, "CHANGED", then]]
    said = {message: "CHANGED", then: f"new {then}"}
    lines = ["title?", "other?", "apart", "go on", "and on", "at last"]
    assert made.output("live") == [said.get(line, line) for line in lines]


def test_a_stream_may_be_changed_too(made: Recorded):
    made.run(TEAM)
    assert made.go_on("fork", fork(made, number_of(made, "three four"), "five")) == ""
    assert made.output("fork")[4:6] == ["five", "20"]


def test_what_is_new_is_refused(made: Recorded):
    """With a hint; an error like any other, so the fork ends there unless the program catches it."""
    made.run(ASKS)
    book = fork(made, number_of(made, "first"), "yes")
    nobody = Seen()
    error = made.go_on("fork", book, model=nobody)
    assert "did not ask" in error
    assert book.new
    assert not nobody.requests
    assert made.output("fork") == ["yes"]


def test_what_is_new_is_done_where_that_is_allowed(made: Recorded):
    made.run(ASKS)
    book = fork(made, number_of(made, "first"), "yes")
    model = Seen()
    assert made.go_on("fork", book, is_live=True, model=model) == ""
    assert [request.messages[-1].text for request in model.requests] == ["something new"]
    assert made.output("fork") == ["yes", "something new", "last"]


def test_a_reply_may_become_an_error(made: Recorded):
    made.run(
        'agent A { model "sim/script" }\nlet a = spawn A;\ntry { print(a <- "x"); } catch AgentFailed(e) { print(e); }'
    )
    assert made.go_on("fork", fork(made, number_of(made, "x"), "it broke", is_error=True)) == ""
    assert made.output("fork") == ["it broke"]


def test_effects_of_the_outside_are_changed_too(made: Recorded, tmp_path: Path):
    (tmp_path / "note.txt").write_text("old")
    made.run('let text = file::read("note.txt");\nprint(text);\nprint(file::read("note.txt"));')
    number = next(step.number for step in made.timeline().steps if "read" in step.kind)
    (tmp_path / "note.txt").unlink()
    book = fork(made, number, "new")
    assert made.go_on("fork", book) == ""
    assert made.output("fork") == ["new", "old"]
    assert book.taken == 1


def test_a_fork_is_a_run_like_any_other(made: Recorded):
    """It can be listed, replayed, and forked again; and says what it is a fork of."""
    made.run(ASKS)
    number = number_of(made, "first")
    made.go_on("fork", fork(made, number, "no"))
    with Runs(made.path) as runs:
        facts: dict[str, Any] = runs["fork"].began
        assert (facts["id"], facts["fork_of"], facts["forked_at"]) == ("fork", "run", number)
        assert runs["fork"].state == "finished"
        assert fresh_name(runs.names, "run") == "run-fork-1"
    old, new = made.timeline(), made.timeline("fork")
    assert not new.notes
    one, other = difference(old, new, number)
    assert one is not None
    assert other is not None
    assert (one.message, other.message) == ("first", "no")
    assert difference(old, old, number) == (None, None)


@pytest.mark.parametrize(
    ("number", "said"), [(999, "no effect 999"), (0, "no effect 0"), (2, "no reply"), (-1, "no effect")]
)
def test_what_has_no_reply_cannot_be_changed(made: Recorded, number: int, said: str):
    made.run('let me = process::self();\nme <- "a";\nreceive { x => {} }')
    with pytest.raises(ConfigError, match=said):
        fork(made, number, "x")


def test_a_name_that_is_taken_is_refused(made: Recorded):
    made.run(ASKS)
    number = number_of(made, "first")
    fork(made, number, "no")
    with pytest.raises(ConfigError, match="already"):
        fork(made, number, "no")
