"""Other agent frameworks with a fake model in the same process: a call, a tool turn, each in an interpreter of its own.

The fake model answers at once; what is measured is the framework. Each is used the way its own documentation shows it,
without telemetry exporters. autogen keeps the conversation in the agent, so a call gets a new agent, as our benchmark's
call gets a new process. They run in whatever interpreter has them: this one, or the one that LYRA_BENCH_PYTHON names.
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

MISSING = "not installed: pip install 'lyra-agents[bench]'"


class Peer(NamedTuple):
    """µs of CPU for a call and for a tool turn; None and a problem where they could not be measured."""

    name: str
    call_us: float | None
    turn_us: float | None
    problem: str = ""


def measured(size: Size) -> list[Peer]:
    return [_measure(key, size) for key in PEERS]


def _measure(key: str, size: Size) -> Peer:
    root = Path(__file__).parent.parent
    for interpreter in filter(None, [os.environ.get("LYRA_BENCH_PYTHON", ""), sys.executable]):
        command = [interpreter, "-m", "benchmarks.agent_peers", key, str(size.of(200, 2)), str(size.of(5, 1))]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 0:
            figures = json.loads(done.stdout.splitlines()[-1])
            return Peer(f"{TITLES[key]} {figures['version']}", figures["call_us"], figures["turn_us"])
        if "ModuleNotFoundError" not in done.stderr:
            raise RuntimeError(f"{TITLES[key]} failed:\n{done.stderr}")
    return Peer(TITLES[key], None, None, MISSING)


# ---------------------------------------------------------------- in the other interpreter


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


async def autogen(count: int, repeats: int) -> tuple[float, float]:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import ChatCompletionClient, CreateResult, FunctionExecutionResultMessage, RequestUsage

    usage = RequestUsage(prompt_tokens=10, completion_tokens=5)

    class Model(ChatCompletionClient):  # type: ignore[misc]
        def __init__(self, *, tools: bool) -> None:
            self._tools = tools

        async def create(self, messages: Any, **_: Any) -> Any:
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

    plain, with_tools = Model(tools=False), Model(tools=True)

    async def call() -> None:
        agent = AssistantAgent("a", model_client=plain)
        assert (await agent.run(task="hello")).messages[-1].to_text() == "the answer"

    async def turn() -> None:
        agent = AssistantAgent("a", model_client=with_tools, tools=[add], reflect_on_tool_use=True)
        assert (await agent.run(task="hello")).messages[-1].to_text() == "the answer"

    return await _best(call, count, repeats), await _best(turn, count, repeats)


async def agent_framework(count: int, repeats: int) -> tuple[float, float]:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message

    class Model(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
        tools = False

        async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
            if self.tools and messages[-1].role != "tool":
                call = Content.from_function_call("1", "add", arguments='{"a": 1, "b": 2}')
                return ChatResponse(messages=[Message("assistant", [call])], response_id="1")
            return ChatResponse(messages=[Message("assistant", ["the answer"])], response_id="1")

    plain, with_tools = Model(), Model()
    with_tools.tools = True
    caller, worker = Agent(plain, name="a"), Agent(with_tools, name="b", tools=[add])

    async def call() -> None:
        assert (await caller.run("hello")).text == "the answer"

    async def turn() -> None:
        assert (await worker.run("hello")).text == "the answer"

    return await _best(call, count, repeats), await _best(turn, count, repeats)


async def pydantic_ai(count: int, repeats: int) -> tuple[float, float]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _info: Any) -> Any:
        return ModelResponse(parts=[TextPart("the answer")])

    def with_tools(messages: Any, _info: Any) -> Any:
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("the answer")])
        return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2})])

    caller, worker = Agent(FunctionModel(answer)), Agent(FunctionModel(with_tools), tools=[add])

    async def call() -> None:
        assert (await caller.run("hello")).output == "the answer"

    async def turn() -> None:
        assert (await worker.run("hello")).output == "the answer"

    return await _best(call, count, repeats), await _best(turn, count, repeats)


async def langgraph(count: int, repeats: int) -> tuple[float, float]:
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

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", answer).add_edge(START, "ask").add_edge("ask", END)
    caller = graph.compile()
    loop: Any = StateGraph(MessagesState)
    loop.add_node("ask", ask).add_node("act", act).add_edge(START, "ask").add_edge("act", "ask")
    loop.add_conditional_edges("ask", after, ["act", END])
    worker = loop.compile()

    async def call() -> None:
        assert (await caller.ainvoke({"messages": [("user", "hello")]}))["messages"][-1].content == "the answer"

    async def turn() -> None:
        assert (await worker.ainvoke({"messages": [("user", "hello")]}))["messages"][-1].content == "the answer"

    return await _best(call, count, repeats), await _best(turn, count, repeats)


PEERS: dict[str, tuple[Callable[[int, int], Awaitable[tuple[float, float]]], str]] = {
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

    key, count, repeats = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    run, package = PEERS[key]
    call_us, turn_us = asyncio.run(run(count, repeats))  # type: ignore[arg-type]
    print(json.dumps({"version": version(package), "call_us": call_us, "turn_us": turn_us}))


if __name__ == "__main__":
    main()
