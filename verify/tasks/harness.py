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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.testing.mock.server import MockServer
from verify.tasks.task import Task

__all__ = ["SCRIPTED", "TaskOutcome", "run_task", "run_tasks"]

SCRIPTED: Final = "anthropic/claude-sonnet-4-5"
_SAGE: Final = (sys.executable, "-c", "import sys; from lyra.cli.main import sage; sys.exit(sage(sys.argv[1:]))")
_TASK_S: Final = 120.0
_REAL_TASK_S: Final = 900.0
_CHECK_S: Final = 60.0
_FORGET: Final = ("__pycache__", ".pytest_cache", ".lyra")


class TaskOutcome(msgspec.Struct, frozen=True):
    """`problems` has a sentence for each thing that is wrong; there are none where the task is solved."""

    name: str
    problems: list[str]
    cost_usd: float = 0.0
    turns: int = 0


class _Run(msgspec.Struct, frozen=True):
    """What `sage -p` printed, and how often the mock server was asked."""

    lines: list[dict[str, Any]]
    error: str
    asked: int = 0

    @property
    def result(self) -> dict[str, Any]:
        return self.lines[-1] if self.lines and self.lines[-1]["type"] == "result" else {}


def run_tasks(tasks: Sequence[Task], *, jobs: int, model: str = "", budget_usd: str = "0.50") -> Iterator[TaskOutcome]:
    """The outcomes of all tasks in their order, so many at once."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda task: run_task(task, model=model, budget_usd=budget_usd), tasks)


def run_task(task: Task, *, model: str = "", budget_usd: str = "0.50", command: Sequence[str] = _SAGE) -> TaskOutcome:
    """Do a task. `model` is a real one, empty is the script; `command` starts `sage`."""
    with tempfile.TemporaryDirectory(prefix="lyra-task-") as place:
        folder = Path(place, "work")
        _write(folder, task.before)
        problems = []
        if task.fails_before and _check(task, folder) is None:
            problems.append("its check passes before anything is done")
        if model:
            run = _run(task, folder, command, model, _environment(), budget_usd, _REAL_TASK_S)
            problems += [*_result(run), *_real_tree(task, folder)]
        else:
            run = asyncio.run(_scripted(task, folder, command))
            problems += [*_result(run), *_requests(task, run), *_ends(task, run), *_scripted_tree(task, folder)]
        problem = _check(task, folder)
        problems += [] if problem is None else [f"its check fails: {problem}"]
        return TaskOutcome(task.name, problems, float(run.result.get("cost_usd", 0)), run.result.get("turns", 0))


async def _scripted(task: Task, folder: Path, command: Sequence[str]) -> _Run:
    async with MockServer(task.script) as server:
        env = {**_environment(), **server.env}
        run = await asyncio.to_thread(_run, task, folder, command, SCRIPTED, env, "0.50", _TASK_S)
        return msgspec.structs.replace(run, asked=len(server.requests))


def _run(
    task: Task,
    folder: Path,
    command: Sequence[str],
    model: str,
    env: dict[str, str],
    budget_usd: str,
    timeout_s: float,
) -> _Run:
    words = ["-p", task.prompt, "--model", model, "--permission-mode", "accept-edits", "--allowed-tools", "Bash"]
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


def _environment() -> dict[str, str]:
    """This process's, with its Python as `python3`."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


# ---------------------------------------------------------------- what is wrong
def _result(run: _Run) -> list[str]:
    status = run.result.get("status", "no result")
    return [] if status == "success" else [f"it ended with {status}: {run.error.strip()[-300:]}"]


def _requests(task: Task, run: _Run) -> list[str]:
    return [] if run.asked == task.requests else [f"the model was asked {run.asked} times, not {task.requests}"]


def _ends(task: Task, run: _Run) -> list[str]:
    """Whether each call ended as the task says."""
    ends = {line["id"]: line for line in run.lines if line["type"] == "tool_end"}
    fails = [step.fails for step in task.steps for _ in step.calls]
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


def _check(task: Task, folder: Path) -> str | None:
    """What the task's check says of a copy of the folder; None where it passes."""
    with tempfile.TemporaryDirectory(prefix="lyra-check-") as place:
        copy = Path(place, "work")
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(*_FORGET))
        try:
            done = subprocess.run(
                ["sh", "-c", task.check],
                cwd=copy,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_CHECK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it took longer than {_CHECK_S:g} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:] or f"exit {done.returncode}"


# ---------------------------------------------------------------- files
def _files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not set(_FORGET) & set(path.parts))
    return {str(path.relative_to(folder)): path.read_bytes().decode(errors="backslashreplace") for path in paths}


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
