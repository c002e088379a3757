"""Each flag of `lyra ps`, `tree`, `trace`, `cost`, `events` and `top` changes what is shown, in every spelling."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.cli.main import main

PROGRAM = 'agent Bot { model "sim/echo" }\nlet bot = spawn Bot;\nprint(bot <- "hello");\n'


async def idle(ctx: Any) -> None:
    await ctx.receive()


@pytest.fixture
def store(lyra: Any) -> Path:
    """An agent that was called, a process of ann's with a child, and one that ended."""
    path = Path(lyra.folder, "k.db")

    async def starts(ctx: Any) -> None:
        ctx.spawn(idle, pid="child")
        await ctx.receive()

    async def fill() -> None:
        async with Kernel(path, programs=[idle, starts]) as kernel:
            helper = kernel.spawn(Agent(name="helper", model="sim/echo"), pid="helper")
            await helper.send("hello")
            kernel.as_user("ann").spawn(starts, pid="parent")
            kernel.spawn(idle, pid="ended")
            await kernel.kill("ended")
            await kernel.durable()

    asyncio.run(fill())
    return path


@pytest.fixture
def durable(lyra: Any) -> Path:
    """A store with the durable Vega run `r`, and nothing beside it."""
    (lyra.folder / "program.vega").write_text(PROGRAM)
    done = lyra("run", "program.vega", "--db", "runs.db", "--run-id", "r")
    assert done.returncode == 0, done.stderr
    return Path(lyra.folder, "runs.db")


def pids(lyra: Any, *words: str) -> set[str]:
    return {row["pid"] for row in lyra.json(*words)}


def events(lyra: Any, *words: str) -> list[dict[str, Any]]:
    done = lyra("events", "k.db", *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_flags_of_ps(lyra: Any, store: Path) -> None:
    """All, of one state, of one user."""
    assert pids(lyra, "ps", "k.db") == {"helper", "parent", "child"}
    assert "ended" in pids(lyra, "ps", "k.db", "-a")
    assert "ended" in pids(lyra, "ps", "k.db", "--all")
    assert pids(lyra, "ps", "k.db", "--state", "terminated") == {"ended"}
    assert pids(lyra, "ps", "k.db", "--user", "ann") == {"parent", "child"}


def test_flags_of_tree(lyra: Any, store: Path) -> None:
    """All; the depth of a child."""
    assert "ended" not in pids(lyra, "tree", "k.db")
    assert "ended" in pids(lyra, "tree", "k.db", "-a")
    assert "ended" in pids(lyra, "tree", "k.db", "--all")
    assert {row["pid"]: row["depth"] for row in lyra.json("tree", "k.db")}["child"] == 1


def test_flags_of_trace_and_cost(lyra: Any, store: Path) -> None:
    """One process; sums by what is named."""
    assert pids(lyra, "trace", "k.db", "--pid", "helper") == {"helper"}
    assert pids(lyra, "trace", "k.db") > {"helper"}
    (row,) = lyra.json("cost", "k.db", "--by", "pid")["rows"]
    assert row["pid"] == "helper"
    assert "model" not in row


def test_flags_of_events(lyra: Any, store: Path) -> None:
    """The last ones, those after a number, of a process, of a kind; also while they are followed."""
    rows = events(lyra)
    assert events(lyra, "-n", "2") == events(lyra, "--last", "2") == rows[-2:]
    assert events(lyra, "--after", "3") == rows[3:]
    assert {row["pid"] for row in events(lyra, "--pid", "helper")} == {"helper"}
    assert {row["kind"] for row in events(lyra, "--kind", "process.created")} == {"process.created"}


@pytest.mark.parametrize("flag", ["-f", "--follow"])
def test_events_go_on(lyra: Any, store: Path, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for more rows, until it is interrupted."""

    class Interrupted:
        def wait(self, _seconds: float) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr("lyra.cli.views.calls.threading", SimpleNamespace(Event=Interrupted))
    assert lyra("events", "k.db", flag).returncode == 130


def test_a_durable_run_is_shown(lyra: Any, durable: Path) -> None:
    """`--run` shows what the run did; the store itself has no process."""
    place = ("runs.db", "--run", "r")
    assert lyra.json("ps", "runs.db", "-a") == []
    assert pids(lyra, "ps", *place, "-a")
    assert pids(lyra, "tree", *place, "-a")
    assert pids(lyra, "trace", *place)
    assert lyra.json("cost", *place)["rows"]
    assert lyra("events", *place).stdout
    assert json.loads(lyra("top", "--once", *place).stdout)["ended"] > 0


class Terminal(io.StringIO):
    """A terminal, as far as a command asks."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("words", "pauses"), [((), [1.0]), (("--every", "7"), [7.0]), (("--once",), [])])
def test_top_looks_again(
    lyra: Any, store: Path, words: tuple[str, ...], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--every` is the pause between two looks; `--once` looks once, also at a terminal."""
    waited: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            return True

    monkeypatch.setattr("lyra.cli.views.processes.threading", SimpleNamespace(Event=Pause))
    screen = Terminal()
    with redirect_stdout(screen):
        assert main(["top", str(store), *words]) == 0
    assert waited == pauses
    assert "helper" in screen.getvalue()
