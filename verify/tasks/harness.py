"""Runs a task with `sage -p` in a fresh folder, and says what is wrong with the outcome.

Scripted: the model is Lyra's mock server, over real HTTP, and gives the calls of the task. Every call has to end as the
task says, the final tree has to be the task's, and its check has to pass. With a real model the tree is free: the check
has to pass and the files in `kept` have to be as they were. The check runs in a copy of the folder: it may change
files.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.clock import SystemClock
from lyra.testing.mock.server import MockServer
from verify.tasks.task import Task

__all__ = ["SCRIPTED", "TaskOutcome", "run_task", "run_tasks"]

SCRIPTED: Final = "anthropic/claude-sonnet-4-5"
_SAGE: Final = (sys.executable, "-c", "import sys; from lyra.cli.main import sage; sys.exit(sage(sys.argv[1:]))")
_SCRIPTED_USD: Final = "5"  # a smaller budget would hold a long answer
_TASK_S: Final = 120.0
_REAL_TASK_S: Final = 900.0
_CHECK_S: Final = 60.0
_FORGET: Final = ("__pycache__", ".pytest_cache", ".lyra")  # made by what runs in the folder


class TaskOutcome(msgspec.Struct, frozen=True):
    """`problems` has a sentence for each thing that is wrong; there are none where the task is solved."""

    name: str
    problems: list[str]
    cost_usd: float = 0.0
    turns: int = 0


class _Run(msgspec.Struct, frozen=True):
    """What `sage -p` printed, how often the mock server was asked, and the longest time between two of its answers."""

    lines: list[dict[str, Any]]
    error: str
    asked: int = 0
    pause_s: float = 0.0

    @property
    def result(self) -> dict[str, Any]:
        return self.lines[-1] if self.lines and self.lines[-1]["type"] == "result" else {}


def run_tasks(tasks: Sequence[Task], *, jobs: int, model: str = "", budget_usd: str = "0.50") -> Iterator[TaskOutcome]:
    """Yield the outcomes of all tasks in their order, so many at once, and those beside them that wait for a vendor."""
    waiting = [task for task in tasks if task.wait_s and not model]
    others = [task for task in tasks if task not in waiting]
    with ThreadPoolExecutor(jobs + len(waiting)) as pool:
        begun = {
            task.name: pool.submit(run_task, task, model=model, budget_usd=budget_usd) for task in (*waiting, *others)
        }
        yield from (begun[task.name].result() for task in tasks)


def run_task(task: Task, *, model: str = "", budget_usd: str = "0.50", command: Sequence[str] = _SAGE) -> TaskOutcome:
    """Do a task. `model` is a real one, empty is the script; `command` starts `sage`."""
    with tempfile.TemporaryDirectory(prefix="lyra-task-") as place:
        folder, env = Path(place, "work"), _environment(task, Path(place, "home"))
        _write(folder, task.before)
        _shell(task.setup, folder, env).check_returncode()
        problems = []
        if task.fails_before and _check(task, folder, env) is None:
            problems.append("its check passes before anything is done")
        if model:
            run = _run(task, folder, command, model, env, budget_usd, _REAL_TASK_S)
            problems += [*_result(run), *_real_tree(task, folder)]
        else:
            run = asyncio.run(_scripted(task, folder, command, env))
            problems += [*_result(run), *_requests(task, run), *_ends(task, run), *_scripted_tree(task, folder)]
        problem = _check(task, folder, env)
        problems += [] if problem is None else [f"its check fails: {problem}"]
        return TaskOutcome(task.name, problems, float(run.result.get("cost_usd", 0)), run.result.get("turns", 0))


async def _scripted(task: Task, folder: Path, command: Sequence[str], env: Mapping[str, str]) -> _Run:
    clock, answered = SystemClock(), list[float]()
    async with MockServer(task.script, seen=lambda *_: answered.append(clock.monotonic())) as server:
        timeout_s = _TASK_S + task.wait_s
        run = await asyncio.to_thread(
            _run, task, folder, command, SCRIPTED, {**env, **server.env}, _SCRIPTED_USD, timeout_s
        )
        pauses = [after - before for before, after in pairwise(answered)]
        return msgspec.structs.replace(run, asked=len(server.requests), pause_s=max(pauses, default=0.0))


def _run(
    task: Task,
    folder: Path,
    command: Sequence[str],
    model: str,
    env: dict[str, str],
    budget_usd: str,
    timeout_s: float,
) -> _Run:
    words = ["-p", task.prompt, "--model", model, "--permission-mode", "accept-edits"]
    words += [word for rule in ("Bash", *task.allowed) for word in ("--allowed-tools", rule)]
    words += [word for rule in task.disallowed for word in ("--disallowed-tools", rule)]
    words += ["--output-format", "stream-json", "--max-budget-usd", budget_usd]
    try:
        done = subprocess.run(
            [*command, *words],
            cwd=folder,
            env={**env, "XDG_DATA_HOME": str(folder.parent / "data")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _Run([], f"it took longer than {timeout_s:g} s")
    return _Run([json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def _environment(task: Task, home: Path) -> dict[str, str]:
    """Return this process's variables with its Python as `python3`, and the task's; one with `setup` has its own home
    folder."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    env = {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    if task.setup:
        home.mkdir()
        env = {name: value for name, value in env.items() if not name.startswith("XDG_")} | {"HOME": str(home)}
    return env | {name: value.replace("~", str(home)) for name, value in task.env.items()}


def _shell(commands: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", commands],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_CHECK_S,
        check=False,
    )


# ---------------------------------------------------------------- what is wrong
def _result(run: _Run) -> list[str]:
    status = run.result.get("status", "no result")
    return [] if status == "success" else [f"it ended with {status}: {run.error.strip()[-300:]}"]


def _requests(task: Task, run: _Run) -> list[str]:
    retries = run.result.get("retries", 0)
    problems = [] if run.asked == task.requests else [f"the model was asked {run.asked} times, not {task.requests}"]
    if retries != task.retries:
        problems.append(f"it was asked {retries} times again")
    if run.pause_s < task.wait_s:
        problems.append(f"it was left alone for {run.pause_s:.0f} s, not {task.wait_s:g} s")
    return problems


def _ends(task: Task, run: _Run) -> list[str]:
    """Whether each call ended as the task says."""
    ends = {line["id"]: line for line in run.lines if line["type"] == "tool_end"}
    fails = [step.fails for step in task.steps for _ in range(step.times) for _ in step.calls]
    in_order = [ends[line["id"]] for line in run.lines if line["type"] == "tool_start" and line["id"] in ends]
    if len(in_order) != len(fails):
        return [f"{len(in_order)} calls ended, not {len(fails)}"]
    return [
        f"{end['name']} {'failed' if end['is_error'] else 'did not fail'}: {str(end['output'])[:200]}"
        for end, expected in zip(in_order, fails, strict=True)
        if end["is_error"] != expected
    ]


def _scripted_tree(task: Task, folder: Path) -> list[str]:
    actual, expected = _files(folder), task.tree()
    paths = [path for path in {**expected, **actual} if actual.get(path) != expected.get(path)]
    return [f"{path} is not as it should be in the end: {str(actual.get(path))[:200]!r}" for path in sorted(paths)]


def _real_tree(task: Task, folder: Path) -> list[str]:
    actual = _files(folder)
    return [f"{path} was changed" for path in task.kept if actual.get(path) != task.before.get(path)]


def _check(task: Task, folder: Path, env: Mapping[str, str]) -> str | None:
    """Return what the task's check says of a copy of the folder; None where it passes."""
    with tempfile.TemporaryDirectory(prefix="lyra-check-") as place:
        copy = Path(place, "work")
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(*_FORGET))
        try:
            done = _shell(task.check, copy, env)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_CHECK_S:g} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:] or f"exit {done.returncode}"


# ---------------------------------------------------------------- files
def _files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not {*_FORGET, ".git"} & set(path.parts))
    return {str(path.relative_to(folder)): path.read_bytes().decode(errors="backslashreplace") for path in paths}


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
