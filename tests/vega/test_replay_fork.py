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


@pytest.mark.parametrize("memory", ["conversation", "window(4)"])
@pytest.mark.parametrize("is_live", [False, True])
def test_a_conversation_that_went_another_way_is_another_question(made: Recorded, memory: str, is_live: bool):
    """What its agent is asked next has the changed reply in it: nobody has answered that before."""
    made.run(
        f'agent A {{ model "sim/script" }}\nagent M {{ model "sim/script" memory {memory} }}\n'
        'let a = spawn A; let m = spawn M;\nprint(m <- "title?"); print(a <- "other"); print(m <- "go on");'
    )
    book = fork(made, number_of(made, "title?"), "OTHER")
    model = Seen()
    error = made.go_on("fork", book, is_live=is_live, model=model)
    assert book.new == ["model:M:sim/script"]
    if is_live:
        assert error == ""
        (request,) = model.requests
        assert [message.text for message in request.messages] == ["title?", "OTHER", "go on"]
        assert made.output("fork") == ["OTHER", "other", "go on"]
    else:
        assert "did not ask" in error
        assert (made.output("fork"), model.requests) == (["OTHER", "other"], [])


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


def test_forks_ask_under_keys_of_their_own(made: Recorded):
    """Two that ask the same new thing are two questions to a provider that tells questions by their keys."""
    made.run(ASKS)
    model = Seen()
    for name in ("fork", "other"):
        made.go_on(name, fork(made, number_of(made, "first"), "yes", name=name), is_live=True, model=model)
    keys = [request.idempotency_key for request in model.requests]
    assert len(keys) == len(set(keys)) == 2


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
