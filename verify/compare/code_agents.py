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

_ANSWERS: Final = 7  # runs of a prompt that needs no tool
_CRASHES: Final = 3  # tasks in which an agent is killed while it waits for the model
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
class AgentFigures:
    """What was measured of one agent."""

    def __init__(self, agent: CodeAgent) -> None:
        self.agent = agent
        self.tasks: list[TaskFigures] = []
        self.questions: list[int] = []
        self.sandboxed: list[int] = []  # questions in Sage's mode of this name
        self.answers: list[RunFigures] = []  # of a prompt that needs no tool
        self.crashes: list[tuple[int, int, bool]] = []
        self.told = self.command_lives = False

    def row(self) -> dict[str, Any]:
        tasks, answers = self.tasks, self.answers
        return {
            "agent": self.agent.name,
            "tasks solved": f"{sum(task.solved for task in tasks)} of {len(tasks)}",
            "calls answered": f"{sum(task.steps_done for task in tasks)} of {sum(task.steps for task in tasks)}",
            "questions": sum(self.questions),
            "in the mode sandboxed": sum(self.sandboxed) if self.sandboxed else "",
            "requests": sum(task.requests for task in tasks),
            "prompt and tools, kB": round(statistics.median(task.head_bytes for task in tasks) / 1000, 1),
            "sent in all, kB": round(sum(task.sent_bytes for task in tasks) / 1000),
            "CPU of a task, s": round(statistics.median(task.run.cpu_s for task in tasks), 2),
            "memory of a task, MB": round(statistics.median(task.run.memory_bytes for task in tasks) / 1e6),
            "start to request, ms": round(statistics.median(run.request_s for run in answers) * 1000),
            "the same, best": round(min(run.request_s for run in answers) * 1000),
            "start to first words, ms": round(statistics.median(run.words_s for run in answers) * 1000),
            "the same, best ": round(min(run.words_s for run in answers) * 1000),
            "CPU of an answer, s": round(statistics.median(run.cpu_s for run in answers), 2),
            "results kept after a crash": f"{sum(kept for _, kept, _ in self.crashes)} of "
            f"{sum(sent for sent, _, _ in self.crashes)}",
            "goes on after a crash": f"{sum(goes_on for _, _, goes_on in self.crashes)} of {len(self.crashes)}",
            "told of a call cut off": self.told,
            "its command goes on": self.command_lives,
        }


async def compare(chosen: Sequence[CodeAgent], tasks: Sequence[CodeTask]) -> list[AgentFigures]:
    """Measure the agents in turn, task by task, so that other work on the machine meets all of them."""
    figures = [AgentFigures(agent) for agent in chosen]
    for task in tasks:
        for measured in figures:
            done = await do_task(measured.agent, task)
            _tell(f"{measured.agent.name}: {task.name}: {'solved' if done.solved else 'NOT SOLVED'}")
            measured.tasks.append(done)
    for task in tasks:
        for measured in figures:
            measured.questions.append(await count_questions(measured.agent, task))
            if measured.agent.name.startswith("sage"):
                measured.sandboxed.append(await count_questions(measured.agent, task, "sandboxed"))
            _tell(f"{measured.agent.name}: {task.name}: {measured.questions[-1]} questions")
    for _ in range(_ANSWERS):
        for measured in figures:
            measured.answers.append(await _answer_at_once(measured.agent, tasks[0]))
    for measured in figures:
        measured.crashes = [await crash_between(measured.agent, task) for task in tasks[:_CRASHES]]
        measured.told, measured.command_lives = await crash_in_a_command(measured.agent, tasks[0])
        _tell(f"{measured.agent.name}: killed {_CRASHES + 1} times")
    return figures


def _tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


async def _answer_at_once(agent: CodeAgent, task: CodeTask) -> RunFigures:
    """Ask something that needs no tool."""
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder = lay_out(task, Path(name))
        async with ScriptedModel(agent, (), folder) as model:
            return await run_agent(agent, agent.words("hello", model.url), folder, Path(name, "home"), model)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="how many of the tasks")
    parser.add_argument("--agents", nargs="+", default=["sage", "claude", "codex"])
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rows = [figures.row() for figures in asyncio.run(compare(agents(options.agents), TASKS[: options.tasks]))]
    width = max(len(row["agent"]) for row in rows) + 2
    for key in rows[0]:
        print(f"{key:<28}" + "".join(f"{row[key]!s:>{width}}" for row in rows))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
