"""Lives of one run that meet: beside each other, with other options, or on a machine that lacks something."""

from __future__ import annotations

import asyncio
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lyra import vega as language
from lyra.cli.app import Invocation
from lyra.cli.main import vega as command
from lyra.cli.vega.durable import _ending
from lyra.cli.vega.output import ProgramOutput
from lyra.errors import Conflict
from lyra.store.space import Space
from lyra.testing.mock import MockServer
from lyra.vega.durable.durable_run import Overtaken, RunExecution
from lyra.vega.durable.runs import DurableRun
from lyra.vega.runtime.world import RunOptions
from tests.cli.vega.test_durable import TWO, begin, kill
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]

TICKS = """\
for let i = 0; i < 12; i = i + 1 { print("t${i}"); process::sleep(40ms); }
print("end");
"""


# ---------------------------------------------------------------- beside each other
def test_two_commands_with_one_run_id_at_once(vega: Vega):
    """One begins the run; the other goes on with it, prints all of it, or says who is at work."""
    vega.write("quick.vega", "for i in [1, 2, 3] { print(i); }")
    words = ["run", "quick.vega", "--db", "run.db", "--run-id"]
    with ThreadPoolExecutor(2) as pool:
        for name in ("a", "b", "c"):
            for done in pool.map(lambda _, name=name: vega(*words, name), range(2)):
                whole = done.returncode == 0 and done.stdout == "1\n2\n3\n"
                assert whole or f"run {name} is being run" in done.stderr, done
            assert vega("resume", name, "--db", "run.db") == (0, "1\n2\n3\n", "")


@pytest.mark.parametrize("pause_s", [0.2, 0.5])
def test_who_goes_on_with_a_live_run_gets_all_of_it_or_nothing(vega: Vega, pause_s: float):
    vega.write("ticks.vega", TICKS)
    child = begin(vega, "run", "ticks.vega", "--db", "run.db", "--run-id", "r", until="t0")
    try:
        subprocess.run(["sleep", str(pause_s)], check=True)
        done = vega("resume", "r", "--db", "run.db")
    finally:
        child.communicate(timeout=30)
    if done.returncode == 0:
        assert done.stdout.splitlines() == [*(f"t{i}" for i in range(12)), "end"]
    else:
        assert "run r is being run by process" in done.stderr
        assert done.stdout == ""


def _life(space: Space, before: DurableRun | None, lines: list[str]) -> RunExecution:
    options = RunOptions(write=lines.append, warn=lines.append)
    return RunExecution(space, language.compile('print("a"); print("b");', "x.vega"), options, before=before)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_life_on_an_old_reading_is_refused(tmp_path: Path, has_begun: bool):
    """What was decided on it is not done: the life that decided reads again."""
    facts = {"id": "r", "file": "x.vega", "model": None, "budget": None, "args": [], "folder": str(tmp_path)}

    async def main() -> None:
        mine, theirs = Space(tmp_path / "run.db", "r"), Space(tmp_path / "run.db", "r")
        lines: list[str] = []
        if has_begun:
            first = asyncio.ensure_future(_life(theirs, None, []).run(facts))
            while not theirs.last_seq():
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        run = DurableRun(mine)
        before = run if has_begun and run.began else None
        late = _life(mine, before, lines)
        await _life(theirs, DurableRun(theirs) if has_begun else None, []).run(None if has_begun else facts)
        with pytest.raises(Overtaken):
            await late.run(facts)
        assert lines == []
        assert DurableRun(mine).output() == ["a", "b"]
        assert mine.holder() is None
        mine.close()
        theirs.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_held", [False, True])
def test_who_was_refused_reads_again_where_the_run_is_over_by_now(tmp_path: Path, is_held: bool):
    """Unless it was at work itself, and was stopped for so long that another one went on: it has printed some."""
    facts = {"id": "r", "file": "x.vega", "model": None, "budget": None, "args": [], "folder": str(tmp_path)}
    space = Space(tmp_path / "run.db", "r")
    life = _life(space, None, [])
    asyncio.run(life.run(facts))
    life.is_held = is_held
    with (
        pytest.raises(Conflict if is_held else Overtaken),
        _ending(Invocation(), space, ProgramOutput(collect=True), [life]),
    ):
        raise Conflict("another kernel owns it")
    space.close()


# ---------------------------------------------------------------- other options
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--budget", "5"], "run r was begun with --budget $2.00"),
        (["--sequential"], "run r was begun without --sequential"),
        (["--model", "sim/upper"], "run r was begun with --model sim/echo"),
        (["--", "y"], "run r was begun with arguments 'x'"),
    ],
)
def test_options_that_differ_are_refused(vega: Vega, more: list[str], message: str):
    vega.write("two.vega", "fn main(args) { print(args); }")
    words = ["run", "two.vega", "--db", "run.db", "--run-id", "r"]
    kept = ["--model", "sim/echo", "--budget", "2"]
    assert vega(*words, *kept, "--", "x").returncode == 0
    done = vega(*words, *more)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "go on with it as it is: vega resume r --db run.db; or" in done.stderr
    assert vega(*words, *kept, "--", "x").stdout == "[x]\n"


def test_an_empty_name_is_no_name(vega: Vega):
    """Such as a variable of a shell that is not set: not a fresh run, which would pay again."""
    vega.write("two.vega", 'print("one");')
    done = vega("run", "two.vega", "--db", "run.db", "--run-id", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be the name of a run" in done.stderr


def test_what_was_spent_is_told_over_all_lives(vega: Vega):
    vega.write("two.vega", TWO)
    kill(begin(vega, "run", "two.vega", "--db", "run.db", "--run-id", "r"))
    for _ in range(2):
        told = vega.json("resume", "r", "--db", "run.db")
        assert (told["output"], told["calls"]) == (["one", "two"], 2)


# ---------------------------------------------------------------- a machine that lacks something
PAID = """\
agent A { model "sim/echo" }
agent B { model "claude-sonnet-4-20250514" retry { max_attempts 1 } }
let a = spawn A;
let b = spawn B;
print(a <- "one");
process::sleep(300ms);
print(b <- "two");
"""
NOWHERE = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "k" * 20}


def state(vega: Vega) -> Any:
    return vega.json("runs", "--db", "run.db")[0]["state"]


def test_what_the_machine_lacks_does_not_end_a_run(vega: Vega):
    """No key, a provider that is down, a key that is refused: the run stops, says how it goes on, and does."""
    vega.write("paid.vega", PAID)
    done = vega("run", "paid.vega", "--db", "run.db", "--run-id", "r")
    assert (done.returncode != 0, done.stdout) == (True, "one\n")
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "vega resume r" in done.stderr
    assert state(vega) == "stopped"
    done = vega("resume", "r", "--db", "run.db")
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert state(vega) == "stopped"
    done = vega.within(NOWHERE, "resume", "r", "--db", "run.db")
    assert (done.returncode != 0, "vega resume r" in done.stderr, state(vega)) == (True, True, "stopped"), done

    async def main() -> None:
        async with MockServer({"replies": [{"text": "paid"}]}) as server:
            done = await asyncio.to_thread(vega.within, server.env, "resume", "r", "--db", "run.db")
            assert done == (0, "one\npaid\n", "")

    asyncio.run(main())
    assert state(vega) == "finished"


def test_a_key_that_is_gone_is_said_before_anything_is_done(vega: Vega):
    vega.write("paid.vega", PAID.replace("sleep(300ms)", "sleep(3s)"))
    child = begin(vega, "run", "paid.vega", "--db", "run.db", "--run-id", "r")
    kill(child)
    done = vega("resume", "r", "--db", "run.db")
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert state(vega) == "stopped"


def test_a_provider_that_is_down_is_the_programs_business_in_a_new_run(vega: Vega):
    """It may catch that; nothing was paid yet."""
    vega.write("two.vega", PAID.replace('print(b <- "two");', 'try { b <- "x"; } catch AgentFailed { print("down"); }'))
    done = vega.within(NOWHERE, "run", "two.vega", "--db", "run.db", "--run-id", "r")
    assert (done.returncode, done.stdout) == (0, "one\ndown\n")


def test_a_cancel_that_comes_too_late_says_so(vega: Vega):
    vega.write("two.vega", TWO)
    vega("run", "two.vega", "--db", "run.db", "--run-id", "r")
    assert vega("cancel", "r", "--db", "run.db").stdout == "run r was finished already\n"


# ---------------------------------------------------------------- a store that cannot be written
def test_a_run_that_is_over_can_be_looked_at_where_nothing_can_be_written(tmp_path: Path, monkeypatch, capsys):
    """An archived store, or a colleague's file. (In this process, since most tests run as root.)"""
    (tmp_path / "hello.vega").write_text('print("hello");')
    (tmp_path / "commands").write_text("where\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def answer_to(*words: str) -> tuple[int, str]:
        code = command([*words, "--db", "run.db"])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    assert answer_to("run", "hello.vega", "--run-id", "r")[0] == 0
    monkeypatch.setattr("lyra.store.sqlite._has_access", lambda _path, mode: not mode & os.W_OK)
    for words in (["runs"], ["trace", "r"], ["replay", "r", "--commands", "commands"]):
        code, text = answer_to(*words)
        assert (code, "hello.vega" in text) == (0, True), text
    assert answer_to("resume", "r") == (0, "hello\n")
    assert not list(tmp_path.glob("run.db-*"))
    for words, expected in ((["run", "hello.vega", "--run-id", "other"], 1), (["answer", "r", "x"], 2)):
        code, text = answer_to(*words)
        assert code == expected, text
