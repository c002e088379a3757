"""What a person is asked by a durable run, and what counts as an answer."""

from __future__ import annotations

import json
import time

import pytest

from tests.cli.vega.test_durable import ASKS, SCRIPT, begin, kill, waiting
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

DOUBT = """\
tool bump() -> str capabilities [process::exec] allowed_commands ["sh"] {
    return exec("sh bump.sh --token=sk-ant-abcdefghijklmnop12345");
}
print("one");
print("[" + bump() + "]");
"""


@pytest.fixture
def in_doubt(vega: Vega) -> Vega:
    """A run that was killed while a command ran, and gone on with by a program that does not wait for the answer."""
    vega.write("bump.sh", "echo begun >> side.txt; sleep 30; echo ended")
    vega.write("doubt.vega", DOUBT)
    child = begin(vega, "run", "doubt.vega", "--db", "run.db", "--run-id", "r")
    for _ in range(200):
        if (vega.folder / "side.txt").exists():
            break
        time.sleep(0.05)
    kill(child)
    child = begin(vega, "resume", "r", "--db", "run.db")
    for _ in range(100):
        if vega.json("answer", "r", "--db", "run.db")["questions"]:
            break
    told = kill(child)
    assert "--db run.db and retry, skip or fail" in told
    return vega


def test_a_doubt_says_what_was_done_and_where(in_doubt: Vega):
    vega = in_doubt
    (question,) = vega.json("answer", "r", "--db", "run.db")["questions"]
    assert "`sh bump.sh --token=***` (doubt.vega:2)" in question["question"]
    assert "abcdefgh" not in json.dumps(question)
    for words, message in (
        (["--yes"], "--yes is no answer to that"),
        (["perhaps"], "'perhaps' is no answer to that"),
        (["--data", '"x"'], "--data is no answer to that"),
        (["retry", "--data", "1"], "retry takes no --data"),
    ):
        done = vega("answer", "r", *words, "--db", "run.db")
        assert done.returncode == 2
        assert message in done.stderr
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "waiting"
    assert "vega resume r --db run.db" in vega("answer", "r", "skip", "--db", "run.db").stderr
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "stopped"
    assert vega("resume", "r", "--db", "run.db")[:2] == (0, "one\n[]\n")


def test_what_is_skipped_has_the_result_that_was_given(in_doubt: Vega):
    in_doubt("answer", "r", "skip", "--data", '"done"', "--db", "run.db")
    assert in_doubt("resume", "r", "--db", "run.db").stdout == "one\n[done]\n"


def test_a_question_is_answered_once_and_by_a_text(vega: Vega):
    vega.write("says.json", json.dumps(SCRIPT))
    vega.write("asks.vega", ASKS)
    child = begin(vega, "run", "asks.vega", "--db", "run.db", "--run-id", "r")
    (question,) = waiting(vega)
    kill(child)
    for words in (["--yes"], [""], ["  "]):
        done = vega("answer", "r", *words, "--db", "run.db")
        assert done.returncode == 2, words
    assert vega("answer", "r", "black", "--db", "run.db").returncode == 0
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "stopped"
    assert vega.json("answer", "r", "--db", "run.db")["questions"] == []
    again = vega("answer", "r", "green", "--db", "run.db")
    assert (again.returncode, "1 answer is kept" in again.stderr) == (2, True)
    named = vega("answer", "r", "green", "--question", question["id"], "--db", "run.db")
    assert (named.returncode, "is answered already" in named.stderr) == (2, True)
    assert vega("resume", "r", "--db", "run.db").stdout == "one\nYou said black.\n"
