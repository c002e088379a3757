"""A killed run goes on with a changed program where that is safe, and is refused with the reason where it is not.

Real kills, real stores: what each case begins is killed with SIGKILL at a known place, its program is edited, and the
run goes on by the command line.
"""

from __future__ import annotations

from typing import Any

import pytest

from lyra.vega.runs import Runs
from tests.cli.test_vega_durable import begin, kill
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

CALLS = """\
agent A { model "sim/echo" system "be brief" }
fn early(x) { return "early ${x}"; }
fn late(x) { return "late ${x}"; }
fn main() {
  let a = spawn A;
  print(early("1"));
  print(a <- "one");
  process::sleep(1500ms);
  print(late("2"));
  print(a <- "two");
}
"""
OUTPUT = ["early 1", "one", "late 2", "two"]


def killed(vega: Vega, source: str, until: str = "one", **options: Any) -> None:
    vega.write("a.vega", source)
    kill(begin(vega, "run", "a.vega", "--db", "run.db", "--run-id", "r", until=until, **options))


def gone_on(vega: Vega, source: str) -> tuple[list[str], str]:
    """The whole output with an edited program, and what was said about it."""
    vega.write("a.vega", source)
    done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def refused(vega: Vega, source: str, *reasons: str, output: list[str]) -> None:
    """An edited program is refused with reasons, nothing is lost, and the run ends with the program that it has."""
    kept = vega.write("a.vega", source)
    before = vega("runs", "--db", "run.db", "--json").stdout
    for words in (["resume", "r", "--program", kept], ["run", kept, "--run-id", "r"]):
        done = vega(*words, "--db", "run.db")
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "the program changed since run r began" in done.stderr
        assert "vega resume r" in done.stderr
        for reason in reasons:
            assert reason in done.stderr, done.stderr
    assert vega("runs", "--db", "run.db", "--json").stdout == before
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout.splitlines()) == (0, output), done.stderr
    assert "a.vega was changed since; the run goes on with the program that it has" in done.stderr


# ---------------------------------------------------------------- safe


def test_functions_that_no_process_has_come_to_may_change(vega: Vega):
    """Also where new ones shift the numbers of the others; the past is not run with the new code."""
    killed(vega, CALLS)
    edited = CALLS.replace("fn early", 'fn other(x) { return |y| x + y; }\nconst MARK = "!";\nfn early')
    edited = edited.replace('"late ${x}"', '"later ${x}" + MARK')
    output, said = gone_on(vega, edited)
    assert output == ["early 1", "one", "later 2!", "two"]
    assert "migrated: fn late was changed (a.vega:5): no process comes to it again before it goes on\n" in said
    assert "migrated: fn other was added (a.vega:2): nothing has come to it yet\n" in said
    assert "migrated: const MARK was added (a.vega:3)" in said
    assert vega("resume", "r", "--db", "run.db").stdout.splitlines() == output


def test_the_rest_of_a_function_that_is_running_may_change(vega: Vega):
    """What main did so far it would have done the same way; what it has not come to is another matter."""
    killed(vega, CALLS)
    edited = CALLS.replace('print(late("2"));', 'print("new");\n  print(late("3"));')
    output, said = gone_on(vega, edited)
    assert output == ["early 1", "one", "new", "late 3", "two"]
    assert "migrated: fn main was changed (a.vega:4): what the run did with it stays as it was\n" in said


def test_later_lives_go_on_with_the_migrated_program(vega: Vega):
    """It is a row of the journal: after another kill nobody has to say it again, and it may be migrated once more."""
    more = CALLS.replace('print(a <- "two");', 'print(a <- "two");\n  process::sleep(1500ms);\n  print(late("3"));')
    killed(vega, more)
    second = more.replace('"late ${x}"', '"later ${x}"')
    vega.write("a.vega", second)
    kill(begin(vega, "resume", "r", "--program", "a.vega", "--db", "run.db", until="two"))
    assert vega.json("runs", "--db", "run.db")[0]["migrations"] == 1
    with Runs(str(vega.folder / "run.db")) as runs:
        run = runs["r"]
        assert len(run.versions) == 2
        assert run.sources()["a.vega"] == second
        assert run.sources(0)["a.vega"] == more
    output, _ = gone_on(vega, "fn first() {}\n" + second + "fn last() {}\n")
    assert output == ["early 1", "one", "later 2", "two", "later 3"]
    facts = vega.json("runs", "--db", "run.db")[0]
    assert (facts["state"], facts["migrations"]) == ("finished", 2)


def test_a_migrated_run_that_is_killed_goes_on_by_itself(vega: Vega):
    more = CALLS.replace('print(a <- "two");', 'print(a <- "two");\n  process::sleep(1500ms);\n  print(late("3"));')
    killed(vega, more)
    vega.write("a.vega", "fn shift() {}\n" + more.replace('"late ${x}"', '"later ${x}"'))
    kill(begin(vega, "resume", "r", "--program", "a.vega", "--db", "run.db", until="two"))
    (vega.folder / "a.vega").unlink()
    output = vega("resume", "r", "--db", "run.db").stdout.splitlines()
    assert output == ["early 1", "one", "later 2", "two", "later 3"]


# ---------------------------------------------------------------- not safe


def test_a_call_that_was_made_cannot_be_another_one(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace('a <- "one"', 'a <- "uno"')
    refused(vega, edited, "fn main was changed (a.vega:4): process main runs it again", "a.vega:7", output=OUTPUT)


def test_a_line_that_was_printed_cannot_be_another_one(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace("early ${x}", "first ${x}")
    reason = "printed 'early 1' where it would print 'first 1'"
    refused(vega, edited, "fn early was changed (a.vega:2): process main runs it", reason, output=OUTPUT)


def test_a_call_that_was_made_cannot_be_left_out(vega: Vega):
    killed(vega, CALLS)
    edited = CALLS.replace('  print(a <- "one");\n  process::sleep(1500ms);\n', "")
    refused(vega, edited, "fn main was changed (a.vega:4)", "process main", output=OUTPUT)


def test_a_run_that_is_over_has_nothing_left_to_do(vega: Vega):
    vega.write("a.vega", CALLS.replace("1500ms", "1ms"))
    vega("run", "a.vega", "--db", "run.db", "--run-id", "r")
    vega.write("a.vega", CALLS)
    done = vega("resume", "r", "--program", "a.vega", "--db", "run.db")
    assert done.returncode == 2
    assert "the run is over" in done.stderr


# ---------------------------------------------------------------- agents

SETTINGS = """\
agent A {
  model "sim/echo"
  system "be brief"
  temperature 0.5
}
fn main() {
  let a = spawn A;
  print(a <- "one");
  let b = spawn A;
  print("go");
  print(a <- "two");
  print(b <- "three");
  print("end");
}
"""
CONVERSATION = """\
agent A { model "sim/echo" system "be brief" memory conversation }
fn main() {
  let a = spawn A;
  print(a <- "one");
  process::sleep(1500ms);
  print(a <- "two");
}
"""
SLOW_MODEL = "sim/echo?delay=1.5"


def test_settings_of_an_agent_hold_for_calls_to_come(vega: Vega):
    """The model, the prompt and the temperature of an agent in use: what was answered stays, the rest is asked the new
    way, also of processes that were spawned before."""
    waits = SETTINGS.replace('print("go");', 'print("go");\n  process::sleep(1500ms);')
    killed(vega, waits, until="go")
    edited = waits.replace('"sim/echo"', '"sim/constant"').replace("be brief", "be kind").replace("0.5", "0.1")
    output, said = gone_on(vega, edited)
    assert output[:2] == ["one", "go"]
    assert output[-1] == "end"
    assert output[2] != "two"
    assert (
        "migrated: agent A was changed (a.vega:1): calls to come have the new model and system and temperature" in said
    )
    assert vega("resume", "r", "--db", "run.db").stdout.splitlines() == output


@pytest.mark.parametrize(
    ("was", "becomes", "key"),
    [
        ("temperature 0.5", "temperature 0.5 concurrency 1", "`concurrency`"),
        ("temperature 0.5", "temperature 0.5 tool look(q: str) -> str { return q; }", "`tool_settings`"),
        ("temperature 0.5", "temperature 0.5 output list[str]", "`output`"),
        ("temperature 0.5", "temperature 0.5 memory conversation", "`memory`"),
    ],
)
def test_settings_that_say_what_an_agent_is_do_not_change(vega: Vega, was: str, becomes: str, key: str):
    waits = SETTINGS.replace('print("go");', 'print("go");\n  process::sleep(1000ms);')
    killed(vega, waits, until="go")
    reason = f"agent A was changed (a.vega:1): {key} cannot change while process"
    refused(vega, waits.replace(was, becomes), reason, output=["one", "go", "two", "three", "end"])


def test_a_conversation_keeps_the_settings_that_it_was_begun_with(vega: Vega):
    killed(vega, CONVERSATION)
    reason = "agent A was changed (a.vega:1): process p"
    refused(vega, CONVERSATION.replace("brief", "kind"), reason, "has a conversation with it", output=["one", "two"])
