"""What the tests of tasks share: a kernel with an agent that has them, and a model that answers by its first word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lyra import Agent, Kernel
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.turn.unfinished import UnfinishedTurn, find_unfinished_turn, withdraw
from lyra.core.budgets.budget import Budget
from lyra.core.message import Message
from lyra.kernel.seams import Seams
from lyra.models.pricing import Price
from lyra.models.provider import Request
from lyra.models.sim import SimProvider
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.agent.tasks.tools import task_tools
from lyra.sage.extensions.agent_files import BUILT_IN, SubAgentDefinition
from tests.kernel.conftest import crash

LEAD = "lead"


class Model(SimProvider):
    """One model for all: the first word of a conversation says which script answers, by the number of answers so far.

    A script is a list, or a function of the request.
    """

    def __init__(self, **scripts: Any) -> None:
        super().__init__(self._answer)
        self.scripts = scripts
        self.requests: list[Request] = []

    def _answer(self, request: Request) -> Any:
        self.requests.append(request)
        script = self.scripts[self.who(request)]
        if callable(script):
            return script(request)
        return script[min(sum(message.role == "assistant" for message in request.messages), len(script) - 1)]

    def who(self, request: Request) -> str:
        return request.messages[0].text.partition(" ")[0].rstrip(":")

    def of(self, who: str) -> list[Request]:
        return [request for request in self.requests if self.who(request) == who]

    def price(self, model: str) -> Price | None:
        return Price.from_data({"input_usd_per_mtok": 1, "output_usd_per_mtok": 10})


def task(prompt: str, **more: Any) -> dict[str, Any]:
    """A call of Task, described by the first word of its prompt."""
    description = "work on " + prompt.partition(" ")[0]
    return {"name": "Task", "arguments": {"description": description, "prompt": prompt, **more}}


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(made)}


def result(request: Request, index: int = -1) -> str:
    """The output of a tool in the last message of tool results."""
    message: Message = next(message for message in reversed(request.messages) if message.role == "tool")
    return str(message.tool_results[index].output)


class Session:
    """A kernel, its agent `sage` with sub-agents, and what the user was told."""

    def __init__(self, kernel: Kernel, process: AgentProcess[Any], tasks: TaskList, notices: list[Any]) -> None:
        self.unfinished: UnfinishedTurn | None = None  # where the turn of an earlier life was given up
        self.kernel = kernel
        self.process = process
        self.tasks = tasks
        self.notices = notices

    async def say(self, text: str) -> str:
        return str(await self.process.send(text))

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    def state(self, task_id: str) -> str:
        return self.tasks.get(task_id).state


@asynccontextmanager
async def opened(
    folder: Path,
    model: SimProvider | str,
    *,
    tools: list[Any] | None = None,
    definitions: dict[str, SubAgentDefinition] | None = None,
    crashes: bool = False,
    grant: Any = None,
    budget: Any = None,
    store: str = "",
    worktrees: Any = None,
    goes_on: bool = True,
    run_budget: str = "",
    placer: Any = None,
    **settings: Any,
) -> AsyncIterator[Session]:
    """A session in a folder; the same folder opens it again. With `crashes` it ends as by kill -9."""
    notices: list[Any] = []
    named = {**BUILT_IN, **(definitions or {})}
    tasks = TaskList(
        definitions=lambda: named,
        folder=folder / "session",
        worktrees=worktrees,
        notify=notices.append,
        budget=lambda: Budget.of(run_budget) if run_budget else None,
        placer=placer,
    )
    agent = Agent("sage", model=model, tools=[*(tools or ()), *task_tools(tasks)], retry=None, **settings)
    kernel = Kernel(store or str(folder / "session.db"), seams=Seams(states=(tasks.state,)))
    await kernel.start()
    try:
        unfinished = None if goes_on else find_unfinished_turn(kernel, "sage")
        if unfinished is not None:
            withdraw(kernel, "sage", unfinished)
        options = {} if grant is None else {"grant": grant}
        process = await kernel.spawn(agent, pid="sage", budget=budget, **options)
        tasks.open(process, agent)
        session = Session(kernel, process, tasks, notices)
        session.unfinished = unfinished
        yield session
    finally:
        tasks.close()
        if crashes:
            crash(kernel)
        else:
            await kernel.close()
