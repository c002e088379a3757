"""Runs a task with `sage -p` in a fresh folder, and says what is wrong with the outcome.

Scripted: the model is Lyra's mock server, over real HTTP, and gives the calls of the task. Every call has to end as the
task says, the final tree has to be the task's, and its check has to pass. With a real model the tree is free: the check
has to pass and the files in `kept` have to be as they were.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from lyra.testing.mock.server import MockServer
from verify.tasks.task import Task

__all__ = ["SCRIPTED", "run_task"]

SCRIPTED: Final = "anthropic/claude-sonnet-4-5"
_SAGE: Final = "import sys; from lyra.cli.main import sage; sys.exit(sage(sys.argv[1:]))"
_TASK_S: Final = 120.0
_REAL_TASK_S: Final = 900.0
_FORGET: Final = ("__pycache__", ".pytest_cache", ".lyra")


def run_task(task: Task, *, model: str = "", budget_usd: str = "0.50") -> list[str]:
    """Sentences about what is wrong; none where the task is solved. `model` is a real one; empty is the script."""
    with tempfile.TemporaryDirectory(prefix="lyra-task-") as place:
        folder = Path(place, "work")
        _write(folder, task.before)
        problems = []
        if task.fails_before and _check(task, folder) is None:
            problems.append("its check passes before anything is done")
        if model:
            lines, error = _run(task, folder, model, dict(os.environ), budget_usd, _REAL_TASK_S)
            return [*problems, *_outcome(lines, error), *_real_tree(task, folder), *_failed_check(task, folder)]
        lines, error, asked = asyncio.run(_scripted(task, folder))
        if asked != len(task.steps) + 1:
            problems.append(f"the model was asked {asked} times, not {len(task.steps) + 1}")
        problems += [*_outcome(lines, error), *_ends(task, lines), *_scripted_tree(task, folder)]
        return [*problems, *_failed_check(task, folder)]


async def _scripted(task: Task, folder: Path) -> tuple[list[dict[str, Any]], str, int]:
    async with MockServer(task.script) as server:
        env = {**os.environ, **server.env}
        lines, error = await asyncio.to_thread(_run, task, folder, SCRIPTED, env, "0.50", _TASK_S)
        return lines, error, len(server.requests)


def _run(
    task: Task, folder: Path, model: str, env: dict[str, str], budget_usd: str, timeout_s: float
) -> tuple[list[dict[str, Any]], str]:
    words = ["-p", task.prompt, "--model", model, "--permission-mode", "accept-edits", "--allowed-tools", "Bash"]
    words += ["--output-format", "stream-json", "--max-budget-usd", budget_usd]
    done = subprocess.run(
        [sys.executable, "-c", _SAGE, *words],
        cwd=folder,
        env={**env, "XDG_DATA_HOME": str(folder.parent / "data"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def _outcome(lines: list[dict[str, Any]], error: str) -> list[str]:
    if not lines or lines[-1]["type"] != "result":
        return [f"it ended without a result: {error.strip()[-300:]}"]
    result = lines[-1]
    return [] if result["status"] == "success" else [f"it ended with {result['status']}: {error.strip()[-300:]}"]


def _ends(task: Task, lines: list[dict[str, Any]]) -> list[str]:
    """Whether each call ended as the task says."""
    ends = [line for line in lines if line["type"] == "tool_end"]
    fails = [step.fails for step in task.steps for _ in step.calls]
    if len(ends) != len(fails):
        return [f"{len(ends)} calls ended, not {len(fails)}"]
    by_id = {line["id"]: line for line in ends}
    in_order = [by_id[line["id"]] for line in lines if line["type"] == "tool_start"]
    return [
        f"{end['name']} {'failed' if end['is_error'] else 'did not fail'}: {str(end['output'])[:200]}"
        for end, expected in zip(in_order, fails, strict=True)
        if end["is_error"] != expected
    ]


def _files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not set(_FORGET) & set(path.parts))
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def _scripted_tree(task: Task, folder: Path) -> list[str]:
    actual, expected = _files(folder), task.tree()
    paths = [path for path in {**expected, **actual} if actual.get(path) != expected.get(path)]
    return [f"{path} is not as it should be in the end: {str(actual.get(path))[:200]!r}" for path in sorted(paths)]


def _real_tree(task: Task, folder: Path) -> list[str]:
    actual = _files(folder)
    return [f"{path} was changed" for path in task.kept if actual.get(path) != task.before.get(path)]


def _failed_check(task: Task, folder: Path) -> list[str]:
    problem = _check(task, folder)
    return [] if problem is None else [f"its check fails: {problem}"]


def _check(task: Task, folder: Path) -> str | None:
    """What the task's check says; None where it passes."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["sh", "-c", task.check], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[-300:] or f"exit {done.returncode}"


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
