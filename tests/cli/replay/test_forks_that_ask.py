"""Forks by `lyra replay` that come to a question, or whose program is not known: the command ends and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source import PYTHONPATH

PROGRAM = """\
import asyncio, sys
from lyra import Kernel


async def pay(amount):
    return f"paid {amount}"


async def order(ctx):
    first = await ctx.do(pay, 3)
    answer = await ctx.ask("Ship it?", kind="confirmation")
    return [first, answer.approved]


async def main(store):
    async with Kernel(store, programs=[order]) as kernel:
        process = kernel.spawn(order, pid="order")
        while not kernel.interrupts.pending():
            await asyncio.sleep(0.01)
        await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"approved": True})
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def store(lyra: Any) -> str:
    file, path = Path(lyra.folder, "shop.py"), str(Path(lyra.folder, "run.db"))
    file.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": lyra.env["HOME"]}
    subprocess.run([sys.executable, str(file), path], env=env, check=True, timeout=60)
    return path


def within(seconds: float, lyra: Any, *words: str) -> Any:
    """The command in a process of its own, which ends by itself."""
    command = [sys.executable, "-m", "lyra", *words]
    env = {**os.environ, **lyra.env, "PYTHONPATH": PYTHONPATH}
    return subprocess.run(
        command, env=env, cwd=lyra.folder, capture_output=True, text=True, timeout=seconds, check=False
    )


@pytest.mark.slow
def test_a_fork_that_asks_a_person_at_once_ends_the_command(lyra: Any, store: str) -> None:
    """Also where it has asked before the command listens, and where it had asked before it was left."""
    done = within(30, lyra, "replay", store, "order", "--fork-at", "2", "--tool-result", '"x"', "--load", "shop.py")
    assert done.returncode == 0, done.stderr
    assert "it asks a person: Ship it?" in done.stdout
    done = within(30, lyra, "replay", store, "order-fork-1", "--resume", "--load", "shop.py")
    assert done.stdout == "order-fork-1: waiting; it asks a person: Ship it?\n"


def test_a_program_that_is_not_known_is_loaded_from_a_file(lyra: Any, store: str) -> None:
    """The hint is for the command line, not for a program."""
    Path(lyra.folder, "other.py").write_text("")
    done = lyra("replay", store, "order", "--fork-at", "2")
    assert done.returncode == 2
    assert "--load FILE.py" in done.stderr
    done = lyra("replay", store, "order", "--fork-at", "2", "--load", "other.py")
    assert "the file of --load has none such" in done.stderr


def test_the_same_answer_is_the_same_step_in_two_runs(lyra: Any, store: str) -> None:
    """When a person answered is no difference."""
    again = store.replace("run.db", "again.db")
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "HOME": lyra.env["HOME"]}
    subprocess.run([sys.executable, str(Path(lyra.folder, "shop.py")), again], env=env, check=True, timeout=60)
    (asked,) = [step for step in lyra.json("replay", store, "order")["timeline"] if step["kind"] == "question"]
    (other,) = [step for step in lyra.json("replay", again, "order")["timeline"] if step["kind"] == "question"]
    assert asked["result"] == other["result"] == '{"approved":true}'
