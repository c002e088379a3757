"""Other agent frameworks with a fake model in the same process: calls and tool turns, in an interpreter for each.

The fake model answers at once, or waits a moment where many calls are in flight; what is measured is the framework.
Each is used the way its own documentation shows it, without telemetry exporters. autogen keeps the conversation in the
agent, so a call gets a new agent, as our benchmark's call gets a new process. They run in whatever interpreter has
them: the one that LYRA_BENCH_PYTHON names, the one for which `.ci/peers` installs them, or this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Size

IN_FLIGHT = 1000  # calls at once, each of which waits for its model
WAIT_S = 0.001
MISSING = "not installed: .ci/peers"


class Peer(NamedTuple):
    """µs of CPU for a call, a tool turn and one of many calls in flight; None and a problem where not measured."""

    name: str
    call_us: float | None
    turn_us: float | None
    in_flight_us: float | None
    problem: str = ""


def measured(size: Size) -> list[Peer]:
    return [_measure(key, size) for key in PEERS]


def _measure(key: str, size: Size) -> Peer:
    root = Path(__file__).parent.parent
    own = root / ".venv" / "peers" / "bin" / "python"
    known = [os.environ.get("LYRA_BENCH_PYTHON"), str(own) if own.exists() else None, sys.executable]
    for interpreter in filter(None, known):
        counts = [str(size.of(200, 2)), str(size.of(5, 1)), str(size.of(IN_FLIGHT, 2))]
        command = [interpreter, "-m", "benchmarks.agent_peers", key, *counts]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            figures = json.loads(done.stdout.splitlines()[-1])
            return Peer(
                f"{TITLES[key]} {figures['version']}", figures["call_us"], figures["turn_us"], figures["in_flight_us"]
            )
        if "ModuleNotFoundError" not in done.stderr:
            raise RuntimeError(f"{TITLES[key]} failed:\n{done.stderr}")
    return Peer(TITLES[key], None, None, None, MISSING)


# ---------------------------------------------------------------- in the other interpreter

Counts = tuple[int, int, int]  # calls one after another, repeats, calls at once
Figures = tuple[float, float, float]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _best(run: Callable[[], Awaitable[Any]], count: int, repeats: int) -> float:
    for _ in range(min(count, 20)):
        await run()
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(count):
            await run()
        best = min(best, time.process_time() - began)
    return best / count * 1e6


async def _best_at_once(run: Callable[[], Awaitable[Any]], count: int, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        await asyncio.gather(*[run() for _ in range(count)])
        best = min(best, time.process_time() - began)
    return best / count * 1e6


async def _measure_calls(
    call: Callable[[], Awaitable[Any]],
    turn: Callable[[], Awaitable[Any]],
    waiting: Callable[[], Awaitable[Any]],
    counts: Counts,
) -> Figures:
    count, repeats, at_once = counts
    return (
        await _best(call, count, repeats),
        await _best(turn, count, repeats),
        await _best_at_once(waiting, at_once, repeats),
    )


async def autogen(counts: Counts) -> Figures:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResultMessage, RequestUsage

    usage = RequestUsage(prompt_tokens=10, completion_tokens=5)

    class Model(ChatCompletionClient):  # type: ignore[misc]
        def __init__(self, *, tools: bool = False, wait_s: float | None = None) -> None:
            self._tools = tools
            self._wait_s = wait_s

        async def create(self, messages: Any, **_: Any) -> Any:
            if self._wait_s is not None:
                await asyncio.sleep(self._wait_s)
            if self._tools and not isinstance(messages[-1], FunctionExecutionResultMessage):
                call = FunctionCall(id="1", name="add", arguments='{"a": 1, "b": 2}')
                return CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)
            return CreateResult(finish_reason="stop", content="the answer", usage=usage, cached=False)

        def create_stream(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        async def close(self) -> None: ...

        def actual_usage(self) -> Any:
            return usage

        def total_usage(self) -> Any:
            return usage

        def count_tokens(self, *args: Any, **kwargs: Any) -> int:
            return 10

        def remaining_tokens(self, *args: Any, **kwargs: Any) -> int:
            return 10_000

        @property
        def model_info(self) -> Any:
            return {
                "vision": False,
                "function_calling": True,
                "json_output": False,
                "family": "unknown",
                "structured_output": False,
            }

        @property
        def capabilities(self) -> Any:
            return self.model_info

    plain, with_tools, slow = Model(), Model(tools=True), Model(wait_s=WAIT_S)

    async def call(model: Model = plain) -> None:
        agent = AssistantAgent("a", model_client=model)
        assert (await agent.run(task="hello")).messages[-1].to_text() == "the answer"

    async def waiting() -> None:
        await call(slow)

    async def turn() -> None:
        agent = AssistantAgent("a", model_client=with_tools, tools=[add], reflect_on_tool_use=True)
        assert (await agent.run(task="hello")).messages[-1].to_text() == "the answer"

    return await _measure_calls(call, turn, waiting, counts)


async def agent_framework(counts: Counts) -> Figures:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

    class Model(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
        tools = False
        wait_s: float | None = None

        async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
            if self.wait_s is not None:
                await asyncio.sleep(self.wait_s)
            if self.tools and messages[-1].role != "tool":
                call = Content.from_function_call("1", "add", arguments='{"a": 1, "b": 2}')
                return ChatResponse(messages=[Message("assistant", [call])], response_id="1")
            return ChatResponse(messages=[Message("assistant", ["the answer"])], response_id="1")

    plain, with_tools, slow = Model(), Model(), Model()
    with_tools.tools = True
    slow.wait_s = WAIT_S
    caller, worker = Agent(plain, name="a"), Agent(with_tools, name="b", tools=[add])
    waiter = Agent(slow, name="c")

    async def call() -> None:
        assert (await caller.run("hello")).text == "the answer"

    async def turn() -> None:
        assert (await worker.run("hello")).text == "the answer"

    async def waiting() -> None:
        assert (await waiter.run("hello")).text == "the answer"

    return await _measure_calls(call, turn, waiting, counts)


async def pydantic_ai(counts: Counts) -> Figures:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _info: Any) -> Any:
        return ModelResponse(parts=[TextPart("the answer")])

    def with_tools(messages: Any, _info: Any) -> Any:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("the answer")])
        return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2})])

    async def answer_later(messages: Any, info: Any) -> Any:
        await asyncio.sleep(WAIT_S)
        return answer(messages, info)

    caller, worker = Agent(FunctionModel(answer)), Agent(FunctionModel(with_tools), tools=[add])
    waiter = Agent(FunctionModel(answer_later))

    async def call() -> None:
        assert (await caller.run("hello")).output == "the answer"

    async def turn() -> None:
        assert (await worker.run("hello")).output == "the answer"

    async def waiting() -> None:
        assert (await waiter.run("hello")).output == "the answer"

    return await _measure_calls(call, turn, waiting, counts)


async def langgraph(counts: Counts) -> Figures:
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    async def answer(state: Any) -> Any:
        return {"messages": [AIMessage("the answer")]}

    async def ask(state: Any) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("the answer")]}
        call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "1"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    async def act(state: Any) -> Any:
        call = state["messages"][-1].tool_calls[0]
        return {"messages": [ToolMessage(str(add(**call["args"])), tool_call_id=call["id"])]}

    def after(state: Any) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    async def answer_later(state: Any) -> Any:
        await asyncio.sleep(WAIT_S)
        return await answer(state)

    def compile_with(ask: Any) -> Any:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)
        return graph.compile()

    caller, waiter = compile_with(answer), compile_with(answer_later)
    loop: Any = StateGraph(MessagesState)
    loop.add_node("ask", ask).add_node("act", act).add_edge(START, "ask").add_edge("act", "ask")
    loop.add_conditional_edges("ask", after, ["act", END])
    worker = loop.compile()

    async def call() -> None:
        assert (await caller.ainvoke({"messages": [("user", "hello")]}))["messages"][-1].content == "the answer"

    async def turn() -> None:
        assert (await worker.ainvoke({"messages": [("user", "hello")]}))["messages"][-1].content == "the answer"

    async def waiting() -> None:
        assert (await waiter.ainvoke({"messages": [("user", "hello")]}))["messages"][-1].content == "the answer"

    return await _measure_calls(call, turn, waiting, counts)


PEERS: dict[str, tuple[Callable[[Counts], Awaitable[Figures]], str]] = {
    "autogen": (autogen, "autogen-agentchat"),
    "agent_framework": (agent_framework, "agent-framework-core"),
    "langgraph": (langgraph, "langgraph"),
    "pydantic_ai": (pydantic_ai, "pydantic-ai-slim"),
}
TITLES = {
    "autogen": "autogen AssistantAgent",
    "agent_framework": "agent-framework Agent",
    "langgraph": "langgraph graph, no chat model",
    "pydantic_ai": "pydantic-ai Agent",
}


def main() -> None:
    from importlib.metadata import version

    count, repeats, at_once = map(int, sys.argv[2:])
    run, package = PEERS[sys.argv[1]]
    call_us, turn_us, in_flight_us = asyncio.run(run((count, repeats, at_once)))  # type: ignore[arg-type]
    figures = {"call_us": call_us, "turn_us": turn_us, "in_flight_us": in_flight_us}
    print(json.dumps({"version": version(package), **figures}))


if __name__ == "__main__":
    main()
