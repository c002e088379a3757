"""Durable runs from the command line: begun, killed, gone on with, looked at, answered, cancelled."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from lyra.cli.main import vega as command
from lyra.vega.durable.runs import Runs
from tests import warm
from tests.cli.conftest import COMMAND as LYRA
from tests.cli.vega_runner import TARGET, Vega, vega

__all__ = ["vega"]

SLOW = """\
agent A { model "sim/echo" }
let a = spawn A;
print(a <- "one");
process::sleep(60s);
print("never");
"""

TWO = """\
agent A { model "sim/echo" }
let a = spawn A;
print(a <- "one");
receive { "go" => {} after 400ms => {} }
print(a <- "two");
"""


def begin(vega: Vega, *args: str, until: str = "one") -> warm.Started:
    """`vega …` in a process of its own, once it has printed a line."""
    child = warm.Started(TARGET, args, cwd=vega.folder, env=vega.env)
    for line in child.stdout:
        if line.strip() == until:
            return child
    raise AssertionError(child.communicate(timeout=30)[1])


def kill(child: warm.Started, number: int = signal.SIGKILL) -> str:
    child.send_signal(number)
    return child.communicate(timeout=30)[1]


def test_a_killed_run_goes_on_and_prints_everything(vega: Vega):
    """At once, without waiting for the dead process's lease; and once more from the store, when it is over."""
    vega.write("two.vega", TWO)
    child = begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r")
    assert "run r\n" in kill(child)
    began = time.monotonic()
    assert vega("resume", "r", "--db", "run.db") == (0, "one\ntwo\n", "")
    assert time.monotonic() - began < 10
    assert vega("resume", "r", "--db", "run.db") == (0, "one\ntwo\n", "")
    assert vega("resume", "r", "--db", "run.db", "--tail") == (0, "", "")
    assert vega("run", "two.vega", "--db", "run.db", "--run-id", "r") == (0, "one\ntwo\n", "")


def test_only_the_rest_with_tail(vega: Vega):
    vega.write("two.vega", TWO)
    kill(begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r"))
    assert vega("resume", "r", "--db", "run.db", "--tail") == (0, "two\n", "")


def test_no_source_is_needed(vega: Vega):
    """The program is kept with the run, with what it imports."""
    vega.write("lib.vega", 'fn say() { return "two"; }')
    vega.write("main.vega", 'import "./lib.vega" as lib;\nprint("one");\nprocess::sleep(300ms);\nprint(lib::say());\n')
    kill(begin(vega, "run", "main.vega", "--db", "run.db", "--run-id", "r"))
    os.unlink(vega.folder / "main.vega")
    os.unlink(vega.folder / "lib.vega")
    assert vega("resume", "r", "--db", "run.db").stdout == "one\ntwo\n"


NEEDY = {
    "work": 'print("one");\nprocess::sleep(200ms);\nfile::append("x.txt", "2");\nprint(file::read("x.txt"));\n',
    "script.toml": (
        'agent A { model "sim/script:FOLDER/script.toml" }\nlet a = spawn A;\nprint(a <- "x");\n'
        'process::sleep(200ms);\nprint(a <- "x");\n'
    ),
}


@pytest.mark.parametrize("gone", NEEDY)
def test_what_is_missing_at_a_resume_does_not_end_the_run(vega: Vega, gone: str):
    """Its folder, or the file by which a simulated model answers: it goes on once that is back."""
    vega.write("script.toml", '[[replies]]\ntext = "one"\n')
    vega.write("work/x.txt", "1")
    vega.write("work/needy.vega", NEEDY[gone].replace("FOLDER", str(vega.folder)))
    db = str(vega.folder / "run.db")
    vega.folder /= "work"
    kill(begin(vega, "run", "needy.vega", "--db", db, "--run-id", "r"))
    vega.folder = vega.folder.parent
    (vega.folder / gone).rename(vega.folder / "away")
    done = vega("resume", "r", "--db", db)
    assert (done.returncode, done.stdout) == (2, "one\n")
    assert gone in done.stderr
    assert "it goes on with: vega resume r" in done.stderr
    assert json.loads(vega("runs", "--db", db, "--json").stdout)[0]["state"] == "stopped"
    (vega.folder / "away").rename(vega.folder / gone)
    done = vega("resume", "r", "--db", db)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, ["12" if gone == "work" else "one"])


def test_the_id_is_fresh_unless_given_and_is_said(vega: Vega):
    vega.write("two.vega", 'print("hi");')
    done = vega("run", "two.vega", "--db", "run.db")
    word, name = done.stderr.split()
    assert (done.returncode, done.stdout, word) == (0, "hi\n", "run")
    assert name.startswith("two-")
    assert vega("runs", "--db", "run.db").stdout.splitlines()[1].split()[:3] == [name, "finished", "two.vega"]
    assert vega("resume", name, "--db", "run.db") == (0, "hi\n", "")


def test_a_plain_run_writes_no_file(vega: Vega):
    vega.write("hello.vega", 'print("hello");')
    assert vega("run", "hello.vega") == (0, "hello\n", "")
    assert vega("run", "hello.vega", "--set", "budget.usd=1").stdout == "hello\n"
    assert [path.name for path in vega.folder.iterdir()] == ["hello.vega"]


@pytest.mark.parametrize("name", ["lyra.toml", "pyproject.toml"])
def test_a_program_of_a_project_runs_durably(vega: Vega, name: str):
    """In the project's store, wherever below it one stands; `vega runs` looks there too."""
    vega.write(f"app/{name}", "")
    vega.write("app/src/hello.vega", 'print("hello");')
    done = vega("run", "app/src/hello.vega")
    word, run = done.stderr.split()
    assert (done.stdout, word, run[:6]) == ("hello\n", "run", "hello-")
    assert (vega.folder / "app/.lyra/lyra.db").is_file()
    vega.folder = vega.folder / "app/src"
    assert vega.json("runs")[0]["run"] == run
    assert vega("resume", run) == (0, "hello\n", "")
    assert vega("run", "hello.vega", "--workers", "2") == (0, "hello\n", "")
    assert vega("run", "hello.vega", "--trace") == (0, "hello\n", "")  # stderr is for the trace
    assert len(vega.json("runs")) == 2


def test_a_project_says_where_its_runs_are_kept(vega: Vega):
    vega.write("app/lyra.toml", '[kernel]\nstore = "state/runs.db"\n')
    vega.write("app/src/hello.vega", 'print("hello");')
    assert "app/lyra.toml (kernel.store)" in vega("run", "app/src/hello.vega").stderr
    assert (vega.folder / "app/.lyra/lyra.db").is_file()  # until it is trusted
    assert vega("run", "app/src/hello.vega", "--trust-folder").stderr.startswith("run hello-")
    assert (vega.folder / "app/state/runs.db").is_file()
    vega.write("app/lyra.toml", '[kernel]\nstore = "memory"\n')
    assert vega("run", "app/src/hello.vega", "--trust-folder") == (0, "hello\n", "")


def test_a_project_that_cannot_be_written_is_no_reason_not_to_run(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "lyra.toml").write_text("")
    (tmp_path / "hello.vega").write_text('print("hello");')
    monkeypatch.setattr("lyra.cli.vega.durable._may_write", lambda _: False)
    assert command(["run", str(tmp_path / "hello.vega")]) == 0
    out, told = capsys.readouterr()
    assert (out, "the run is not kept" in told) == ("hello\n", True)
    assert not (tmp_path / ".lyra").exists()


def test_the_error_of_a_run_is_kept_with_its_place(vega: Vega):
    vega.write("bad.vega", 'print("before");\nthrow Broken("pipe");\n')
    first = vega("run", "bad.vega", "--db", "run.db", "--run-id", "r")
    assert (first.returncode, first.stdout) == (1, "before\n")
    again = vega("resume", "r", "--db", "run.db")
    assert again == (1, "before\n", first.stderr.replace("run r\n", ""))
    assert 'throw Broken("pipe");' in again.stderr


def test_an_unknown_run_is_told_with_the_nearest(vega: Vega):
    vega.write("hello.vega", 'print("hello");')
    vega("run", "hello.vega", "--db", "run.db", "--run-id", "morning")
    for words in (["resume"], ["cancel"], ["trace"], ["answer"]):
        done = vega(*words, "mornign", "--db", "run.db")
        assert done.returncode == 2
        assert "did you mean 'morning'?" in done.stderr
    assert vega("runs", "--db", "none.db").returncode == 1
    assert not (vega.folder / "none.db").exists()


def test_a_damaged_store_is_refused(vega: Vega):
    vega.write("hello.vega", 'print("hello");')
    vega.write("run.db", "this is no store at all, and long enough to look like one" * 100)
    for words in (["run", "hello.vega", "--run-id", "r"], ["runs"], ["resume", "r"], ["trace", "r"]):
        done = vega(*words, "--db", "run.db")
        assert (done.returncode, done.stdout) == (1, "")
        assert "run.db is not a Lyra store" in done.stderr


def test_two_runs_in_one_file_at_once(vega: Vega):
    """Each has a journal of its own; neither waits for the other's lease."""
    vega.write("slow.vega", SLOW)
    vega.write("two.vega", TWO)
    child = begin(vega, "run", "slow.vega", "--db", "run.db", "--run-id", "slow")
    try:
        assert vega("run", "two.vega", "--db", "run.db", "--run-id", "quick").stdout == "one\ntwo\n"
        listed = {run["run"]: run["state"] for run in vega.json("runs", "--db", "run.db")}
        assert listed == {"slow": "running", "quick": "finished"}
        taken = vega("resume", "slow", "--db", "run.db")
        assert taken.returncode == 1
        assert "run slow is being run by process" in taken.stderr
    finally:
        kill(child)


def test_an_interrupted_run_goes_on(vega: Vega):
    """Ctrl-C stops the process, not the run."""
    vega.write("two.vega", TWO.replace("400ms", "900ms"))
    child = begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r")
    told = kill(child, signal.SIGINT)
    assert child.returncode == 130
    assert "vega resume r" in told
    assert vega("resume", "r", "--db", "run.db") == (0, "one\ntwo\n", "")


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_run_is_cancelled_whether_it_is_at_work_or_not(vega: Vega, is_alive: bool):
    vega.write("slow.vega", SLOW)
    child = begin(vega, "run", "slow.vega", "--db", "run.db", "--run-id", "r")
    if not is_alive:
        kill(child)
    assert vega("cancel", "r", "--db", "run.db") == (0, "run r is cancelled\n", "")
    if is_alive:
        _, told = child.communicate(timeout=30)
        assert child.returncode == 1
        assert "cancelled" in told
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "cancelled"
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout) == (1, "one\n")
    assert vega("cancel", "r", "--db", "run.db").stdout == "run r was cancelled already\n"


def test_a_changed_program_is_refused_with_what_changed(vega: Vega):
    """By name and line; comments and layout are no change."""
    source = 'fn greet(x) { return "hi " + x; }\nprint(greet("a"));\nprint("one");\nprocess::sleep(300ms);\n'
    source += 'print(greet("b"));\n'
    vega.write("a.vega", source)
    kill(begin(vega, "run", "a.vega", "--db", "run.db", "--run-id", "r"))
    vega.write("a.vega", source.replace('"hi "', '"ho "') + "\nfn more() { return 1; }\n")
    for words in (["run", "a.vega", "--run-id", "r"], ["resume", "r", "--program", "a.vega"]):
        done = vega(*words, "--db", "run.db")
        assert (done.returncode, done.stdout) == (2, "")
        assert "fn greet was changed (a.vega:1)" in done.stderr
        assert "fn more was added (a.vega:7)" in done.stderr
    vega.write("a.vega", "// a word\n" + source.replace("{ return", "{\n  return"))
    assert vega("resume", "r", "--program", "a.vega", "--db", "run.db").stdout == "hi a\none\nhi b\n"


def test_the_trace_of_a_run(vega: Vega):
    vega.write("two.vega", TWO.replace("400ms", "1ms"))
    vega("run", "two.vega", "--db", "run.db", "--run-id", "r")
    lines = vega("trace", "r", "--db", "run.db").stdout.splitlines()
    assert lines[0] == "run r: finished"
    assert [line.split()[:2] for line in lines[1:]] == [
        ["process", "two.vega"],
        ["agent", "A"],
        ["call", "A"],
        ["model", "sim/echo"],
        ["call", "A"],
        ["model", "sim/echo"],
    ]
    told = vega.json("trace", "r", "--db", "run.db")["trace"]
    assert (told["calls"], told["output_tokens"], told["retries"]) == (2, 2, 0)
    assert {"cost_usd", "latency_ms", "retries", "input_tokens"} <= told["spans"][1]["spans"][0].keys()


def test_a_mistake_in_a_script_is_told_with_its_place(vega: Vega):
    vega.write("says.toml", '[[replies]]\ntext = "hi"\n[[replies]]\nerror = { kind = "overloadd" }\n')
    vega.write("a.vega", 'agent A { model "sim/script:says.toml" }\nlet a = spawn A;\nprint(a <- "x");')
    for words in ([], ["--db", "run.db"]):
        done = vega("run", "a.vega", *words)
        assert "error[agent_failed]: says.toml:4: kind is one of" in done.stderr
        assert "not 'overloadd' (did you mean 'overloaded'?)" in done.stderr
        assert "at a.vega:3:7" in done.stderr


STREAMS = """
agent A { model "sim/script:says.json" }
let a = spawn A;
let said = "";
for piece in a <~ "whole" { said = said + piece; }
for piece in a <~ "slow" { break; }
try { for piece in a <~ "bad" { } } catch AgentFailed(why) { print(said); }
"""
STREAMED = [
    {"user": "whole", "text": "one two three"},
    {"user": "slow", "text": "one two three", "chunk_s": 5},
    {"user": "bad", "text": "one two", "error": {"kind": "bad_request", "after_chunks": 1}},
]


def test_a_stream_that_was_read_to_its_end_went_well(vega: Vega):
    """Its process is stopped by the reader, as the one of a stream that is left early is."""
    vega.write("says.json", json.dumps({"replies": STREAMED}))
    vega.write("a.vega", STREAMS)
    assert vega("run", "a.vega", "--db", "run.db", "--run-id", "r").stdout == "one two three\n"
    told = vega.json("trace", "r", "--db", "run.db")["trace"]
    statuses = [span["status"] for span in told["spans"] if span["kind"] == "call"]
    assert (statuses[0], statuses[1]) == ("ok", "shutdown")
    assert statuses[2] != "ok"


def test_options_are_kept(vega: Vega):
    """Model, budget, arguments and folder are those of the beginning, wherever it goes on."""
    vega.write("a.vega", 'agent A { model "absent/x" }\nfn main(args) {\n  let a = spawn A;\n  print("one");\n')
    path = Path(vega.folder / "a.vega")
    path.write_text(
        path.read_text() + "  process::sleep(300ms);\n  print(a <- args[0]);\n  print(budget::limit());\n}\n"
    )
    kill(
        begin(
            vega, "run", "a.vega", "--db", "run.db", "--run-id", "r", "--model", "sim/echo", "--budget", "2", "--", "x"
        )
    )
    vega.folder.joinpath("deep").mkdir()
    done = vega("resume", "r", "--db", "../work/run.db")
    assert done == (0, "one\nx\n2\n", "")
    with Runs(vega.folder / "run.db") as runs:
        assert runs["r"].began["args"] == ["x"]
        assert runs["r"].sources().keys() == {"a.vega"}


SCRIPT = {
    "replies": [
        {"user": "tea", "tool_calls": [{"name": "AskUser", "arguments": {"question": "Which tea?"}}]},
        {"tool": "AskUser", "text": "You said {result}."},
    ]
}
ASKS = """\
agent Q { model "sim/script:says.json" tools ["AskUser"] }
let q = spawn Q;
print("one");
print(q <- "tea");
"""


def waiting(vega: Vega) -> list[dict[str, str]]:
    """The questions of the run, once there are some."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        questions = vega.json("answer", "r", "--db", "run.db")["questions"]
        if questions:
            return list(questions)
    raise AssertionError("it asks nothing")


def test_a_question_is_answered_while_the_run_waits(vega: Vega):
    vega.write("says.json", json.dumps(SCRIPT))
    vega.write("asks.vega", ASKS)
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    (question,) = waiting(vega)
    assert question["kind"] == "clarification"
    assert "Which tea?" in question["question"]
    began = time.monotonic()
    while "Which tea?" not in child.told() and time.monotonic() - began < 30:  # the run looks for questions in turns
        time.sleep(0.05)
    assert vega("answer", "r", "green", "--db", "run.db") == (0, "", "")
    out, told = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "You said green.\n")
    assert "Which tea?" in told
    assert "vega answer r" in told


COUNT = """\
name: count
description: count
implementation: {type: exec, command: [echo, counted]}
"""


@pytest.mark.parametrize(("word", "said"), [("--yes", "counted"), ("--no", "count was not run")])
def test_a_confirmation_is_answered_with_yes_or_no(vega: Vega, word: str, said: str):
    """The user's own rule asks before a tool of the user's runs; no text is an answer to that."""
    folder = Path(vega.env["HOME"]) / ".config/lyra"
    (folder / "tools").mkdir(parents=True)
    (folder / "permissions.toml").write_text('ask = ["count"]\n')
    (folder / "tools/count.yaml").write_text(COUNT)
    call = {"user": "tea", "tool_calls": [{"name": "count", "arguments": {}}]}
    vega.write("says.json", json.dumps({"replies": [call, {"tool": "count", "text": "it says {result}"}]}))
    vega.write("asks.vega", ASKS.replace("AskUser", "count"))
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    (question,) = waiting(vega)
    assert question["kind"] == "confirmation"
    assert "Allow count?" in question["question"]
    assert vega("answer", "r", "perhaps", "--db", "run.db").returncode == 2
    assert vega("answer", "r", word, "--db", "run.db") == (0, "", "")
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 0
    assert said in out


def test_a_question_waits_for_its_answer_across_processes(vega: Vega):
    """Asked in one life, answered while no process is at work, taken in the next; an answer is used once."""
    vega.write("says.json", json.dumps(SCRIPT))
    vega.write("asks.vega", ASKS)
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    (question,) = waiting(vega)
    kill(child)
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "waiting"
    assert "Which tea?" in vega("answer", "r", "--db", "run.db").stdout
    assert vega("answer", "r", "x", "--question", "int_absent", "--db", "run.db").returncode == 2
    assert "vega answer r --db run.db TEXT" in vega("answer", "r", "--yes", "--db", "run.db").stderr
    chosen = ("--question", question["id"], "--db", "run.db")
    for _ in range(2):  # kept, and then told that it is
        assert "vega resume r --db run.db" in vega("answer", "r", "black", *chosen).stderr
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout) == (0, "one\nYou said black.\n")
    assert vega("answer", "r", "green", "--db", "run.db").returncode == 2


def test_json_everywhere(vega: Vega):
    vega.write("hello.vega", 'print("hello");')
    told = json.loads(vega("run", "hello.vega", "--db", "run.db", "--run-id", "r", "--json").stdout)
    assert (told["run"], told["output"], told["ok"]) == ("r", ["hello"], True)
    assert vega.json("resume", "r", "--db", "run.db")["output"] == ["hello"]
    (listed,) = vega.json("runs", "--db", "run.db")
    assert (listed["run"], listed["state"], listed["lines"]) == ("r", "finished", 1)
    assert vega.json("cancel", "r", "--db", "run.db") == {"run": "r", "was": "finished", "state": "finished"}
    assert vega.json("answer", "r", "--db", "run.db")["questions"] == []


def test_a_check_of_the_store_looks_into_its_runs(vega: Vega):
    import sqlite3

    vega.write("hello.vega", 'print("hello");')
    vega("run", "hello.vega", "--db", "run.db", "--run-id", "r")
    assert vega("store", "check", "run.db", command=LYRA).returncode == 0
    with contextlib.closing(sqlite3.connect(vega.folder / "run.db")) as file, file:
        file.execute('UPDATE "r/journal" SET crc = crc + 1')
    file.close()
    done = vega("store", "check", "run.db", command=LYRA)
    assert done.returncode == 1
    assert "run r: " in done.stdout
    assert vega("resume", "r", "--db", "run.db").returncode == 1


def test_a_trace_has_all_that_was_spent(vega: Vega):
    """Also in calls whose rows are gone; then it says so."""
    vega.write(
        "many.vega",
        'agent A { model "sim/echo" }\nlet a = spawn A;\n'
        'for let i = 0; i < 900; i = i + 1 { a <- "x"; }\nprocess::sleep(1500ms);\n'
        'for let i = 0; i < 900; i = i + 1 { a <- "x"; }\nprint("one");\n',
    )
    sets = ["--set", "kernel.retention_s=1", "--set", "kernel.snapshot_every_events=500"]
    assert vega("run", "many.vega", "--db", "run.db", "--run-id", "r", *sets).returncode == 0
    (run,) = vega.json("runs", "--db", "run.db")
    told = vega.json("trace", "r", "--db", "run.db")
    names = ("calls", "input_tokens", "output_tokens", "cost_usd")
    assert [told["trace"][name] for name in names] == [run[name] for name in names]
    assert 0 < told["unlisted_calls"] < 1800
    assert told["since"] > run["began"]
    assert "are only in the sums" in vega("trace", "r", "--db", "run.db").stdout


def test_a_trace_says_why_a_run_failed(vega: Vega):
    vega.write("bad.vega", 'throw Broken("pipe");\n')
    vega("run", "bad.vega", "--db", "run.db", "--run-id", "r")
    assert "process bad.vega  Broken: pipe" in vega("trace", "r", "--db", "run.db").stdout
    told = vega.json("trace", "r", "--db", "run.db")
    assert (told["trace"]["status"], told["trace"]["error"], told["unlisted_calls"]) == ("Broken", "pipe", 0)


@pytest.mark.parametrize(("flag", "sign"), [("--trace", '"agent"'), ("--live", "Q")])
def test_a_run_that_goes_on_is_shown_as_it_is_asked_for(vega: Vega, flag: str, sign: str):
    vega.write("says.json", json.dumps(SCRIPT))
    vega.write("asks.vega", ASKS)
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    waiting(vega)
    kill(child)
    vega("answer", "r", "green", "--db", "run.db")
    done = vega("resume", "r", "--db", "run.db", flag)
    assert done.stdout.endswith("You said green.\n")
    assert sign in done.stderr
