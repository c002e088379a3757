"""`lyra replay` and `lyra diff` on the durable runs of Vega programs."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.replay.test_replay import talked

SOURCE = """\
agent Bot { model "sim/echo" }
let bot = spawn Bot;
fn twice(word) {
    let first = bot <- word;
    return bot <- first + "!";
}
print(twice("hello"));
"""
MODEL_STEP = 5  # where the first call is answered


@pytest.fixture
def store(lyra: Any) -> str:
    """Two runs of one program, the second with another word."""
    for run, word in (("one", "hello"), ("two", "good-bye")):
        Path(lyra.folder, "p.vega").write_text(SOURCE.replace("hello", word))
        assert lyra("run", "p.vega", "--db", "runs.db", "--run-id", run).returncode == 0
    return str(Path(lyra.folder, "runs.db"))


def test_a_vega_run_is_stepped_through_with_its_variables(
    lyra: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its program is in the store: no file is needed."""
    data = lyra.json("replay", store, "one")
    assert data["run_id"] == "one"
    assert data["timeline"][MODEL_STEP - 1]["kind"] == "model"
    moment = lyra.json("replay", store, "one", "--at", str(MODEL_STEP))
    assert moment["frames"][-1] == {
        "function": "twice",
        "file": "p.vega",
        "line": 4,
        "variables": {"word": '"hello"'},
        "branch": "",
    }
    shown = talked(lyra, monkeypatch, "goto 8\nvars\n", store, "one").stdout
    assert "in twice, p.vega:5" in shown
    assert 'first = "hello"' in shown


def test_two_vega_runs_are_compared(lyra: Any, store: str) -> None:
    """By their ids; a run is the same as itself."""
    done = lyra("diff", store, "one", "two")
    assert done.returncode == 1
    assert done.stdout.startswith("- one: ")
    assert "+ two: " in done.stdout
    assert "is the first that differs" in done.stdout
    assert lyra("diff", store, "one", "one").returncode == 0


def test_how_a_vega_run_is_forked_is_said_with_the_command(
    lyra: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number that `vega replay` knows the effect by; that command makes the fork."""
    done = lyra("replay", store, "one", "--fork-at", str(MODEL_STEP), "--reply", "x")
    assert done.returncode == 2
    assert f"vega replay one --db {store} --live, and there: fork reply 2 TEXT" in done.stderr
    said = talked(lyra, monkeypatch, f"goto {MODEL_STEP}\nfork reply x\n", store, "one")
    assert "fork reply 2 TEXT" in said.stderr
    monkeypatch.setattr(sys, "stdin", io.StringIO('fork reply 2 "x"\n'))
    forked = lyra("vega", "replay", "one", "--db", store, "--live", "--plain").stdout
    assert "| x!" in forked
    assert lyra("replay", store, "one-fork-1", "--steps").returncode == 0
    assert f"vega resume one --db {store}" in lyra("replay", store, "one", "--resume").stderr


def test_a_name_that_is_no_run_is_a_mistake_of_the_user(lyra: Any, store: str) -> None:
    from lyra.store.space import Space

    Space(store, "one.nodes").close()
    for name in ("three", "one.nodes"):
        done = lyra("replay", store, name)
        assert done.returncode == 2
        assert "there is no process" in done.stderr
