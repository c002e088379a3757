"""Sage beside the command-line tools claude and codex: the same ten tasks, the same scripted model, on one machine.

    python -m verify.compare.code_agents [--tasks N] [--agents sage claude codex] [--json FILE]

`.ci/tools` installs the tools from npm. The model is Lyra's mock server, which speaks the formats of both vendors; it
asks for the steps of a task (`code_agent_tasks`) with the tools that the agent offers, so that every agent does the
same work. Measured are what was done, what a person would have been asked, what was sent, processor time, memory, the
time to the first words, and what is left after a `kill -9` in the middle. Each run has a folder, a home and a session
of its own. An agent that is not installed has no column.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from verify.compare.code_agent_runs import (
    AGAIN,
    RUN_S,
    CodeAgent,
    RunFigures,
    ScriptedModel,
    agents,
    below,
    command_line,
    kill_all,
    run_agent,
    start,
)
from verify.compare.code_agent_talks import count_questions
from verify.compare.code_agent_tasks import TASKS, CodeTask, Run, lay_out

__all__ = ["main"]

_SLEEPS: Final = "sleep 4.25; echo late > late.txt"


# ---------------------------------------------------------------- the tasks
class TaskFigures(NamedTuple):
    """One task of one agent."""

    solved: bool
    steps: int
    steps_done: int
    requests: int
    head_bytes: int
    sent_bytes: int
    run: RunFigures


async def do_task(agent: CodeAgent, task: CodeTask) -> TaskFigures:
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder = lay_out(task, Path(name))
        home = Path(name, "home")
        async with ScriptedModel(agent, task.turns, folder) as model:
            run = await run_agent(agent, agent.words(task.prompt, model.url), folder, home, model)
            main = model.main_requests()
        solved = await _check(task.check, folder)
        steps = sum(map(len, task.turns))
        done = len(main[-1].results()) if main else 0
        head = main[0].head_bytes() if main else 0
        sent = sum(request.bytes for request in model.sent)
        return TaskFigures(solved and run.code == 0, steps, done, len(model.sent), head, sent, run)


async def _check(line: str, folder: Path) -> bool:
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", line), cwd=folder, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


# ---------------------------------------------------------------- a crash
async def crash_between(agent: CodeAgent, task: CodeTask) -> tuple[int, int, bool]:
    """Kill an agent while it waits for the model, and go on: results sent before, results kept, and whether it ran."""
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder, home = lay_out(task, Path(name)), Path(name, "home")
        async with ScriptedModel(agent, task.turns, folder) as model:
            model.waits = len(task.turns) - 1
            started = await start(agent, agent.words(task.prompt, model.url), folder, home, model.url)
            await _until(lambda: len(model.main_requests()) == len(task.turns))
            before = len(model.main_requests()[-1].results())
            kill_all(started.pid)
            sent_before = len(model.sent)
            run = await run_agent(agent, agent.again(AGAIN, model.url), folder, home, model)
            after = [sent for sent in model.sent[sent_before:] if sent.tools]
            return before, len(after[0].results()) if after else 0, run.code == 0


async def crash_in_a_command(agent: CodeAgent, task: CodeTask) -> tuple[bool, bool]:
    """Kill an agent, and not its command, while the command runs; tell whether the model is told of it afterwards, and
    whether the command went on."""
    turns = (*task.turns[:1], (Run(_SLEEPS),))
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder, home = lay_out(task, Path(name)), Path(name, "home")
        async with ScriptedModel(agent, turns, folder) as model:
            started = await start(agent, agent.words(task.prompt, model.url), folder, home, model.url)
            await _until(lambda: any("sleep\0004.25" in command_line(pid) for pid in below(started.pid)))
            own = [pid for pid in below(started.pid) if "4.25" not in command_line(pid)]
            for pid in own:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(started.pid, 0)  # noqa: ASYNC222 - it was killed
            await asyncio.sleep(6)
            lives = (folder / "late.txt").exists()
            sent_before = len(model.sent)
            await run_agent(agent, agent.again(AGAIN, model.url), folder, home, model)
            after = [sent for sent in model.sent[sent_before:] if sent.tools]
            return bool(after) and "4.25" in json.dumps(after[0].body), lives


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(RUN_S):
        while not is_so():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


# ---------------------------------------------------------------- the table
async def compare(agent: CodeAgent, tasks: Sequence[CodeTask]) -> dict[str, Any]:
    """Return the row of one agent."""
    done = []
    for task in tasks:
        figures = await do_task(agent, task)
        print(f"{agent.name}: {task.name}: {'solved' if figures.solved else 'NOT SOLVED'}", file=sys.stderr)
        done.append(figures)
    questions = [await count_questions(agent, task) for task in tasks]
    simple = [await _answer_at_once(agent, tasks[0]) for _ in range(5)]
    crashed = [await crash_between(agent, task) for task in tasks[:3]]
    told, lives = await crash_in_a_command(agent, tasks[0])
    return {
        "agent": agent.name,
        "tasks": len(tasks),
        "solved": sum(figures.solved for figures in done),
        "steps": sum(figures.steps for figures in done),
        "steps_done": sum(figures.steps_done for figures in done),
        "questions": sum(questions),
        "requests": sum(figures.requests for figures in done),
        "head_kb": round(statistics.median(figures.head_bytes for figures in done) / 1000, 1),
        "sent_kb": round(sum(figures.sent_bytes for figures in done) / 1000),
        "cpu_s": round(statistics.median(figures.run.cpu_s for figures in done), 2),
        "memory_mb": round(statistics.median(figures.run.memory_bytes for figures in done) / 1e6),
        "request_ms": round(statistics.median(run.request_s for run in simple) * 1000),
        "words_ms": round(statistics.median(run.words_s for run in simple) * 1000),
        "answer_cpu_s": round(statistics.median(run.cpu_s for run in simple), 2),
        "crash_sent": sum(sent for sent, _, _ in crashed),
        "crash_kept": sum(kept for _, kept, _ in crashed),
        "crash_goes_on": sum(goes_on for _, _, goes_on in crashed),
        "crash_told": told,
        "crash_command_lives": lives,
    }


async def _answer_at_once(agent: CodeAgent, task: CodeTask) -> RunFigures:
    """Ask something that needs no tool."""
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder = lay_out(task, Path(name))
        async with ScriptedModel(agent, (), folder) as model:
            return await run_agent(agent, agent.words("hello", model.url), folder, Path(name, "home"), model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=len(TASKS))
    parser.add_argument("--agents", nargs="+", default=["sage", "claude", "codex"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    chosen = agents(options.agents)
    rows = [asyncio.run(compare(agent, TASKS[: options.tasks])) for agent in chosen]
    width = max(len(row["agent"]) for row in rows) + 2
    for key in rows[0]:
        print(f"{key:<20}" + "".join(f"{row[key]!s:>{width}}" for row in rows))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
