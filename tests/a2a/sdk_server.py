"""A server made with the official SDK, a process of its own: `python -m tests.a2a.sdk_server PORT LOG [0.3|rest]`.

It does what the first word of a message says, and writes a line to LOG for each message that its agent gets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette


class Worker(AgentExecutor):
    def __init__(self, log: Path) -> None:
        self._log = log

    async def execute(self, context: RequestContext, event_queue: Any) -> None:
        text = context.get_user_input()
        with self._log.open("a") as log:
            log.write(f"{text}\n")
        word, _, rest = text.partition(" ")
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        if word == "message":
            await event_queue.enqueue_event(pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=[pb.Part(text=rest)]))
            return
        if word == "late":  # nothing is told before the work is under way
            while not (self._log.parent / rest).exists():
                await asyncio.sleep(0.02)
        if context.current_task is None:
            assert context.message is not None
            task = pb.Task(id=context.task_id, context_id=context.context_id, history=[context.message])
            task.status.state = pb.TASK_STATE_SUBMITTED
            await event_queue.enqueue_event(task)
        await updater.start_work()
        await self._work(word, rest, context, updater)

    async def _work(self, word: str, rest: str, context: RequestContext, updater: TaskUpdater) -> None:
        if word == "slow":
            await asyncio.sleep(float(rest))
        if word == "die":
            os._exit(9)
        if word == "ask":
            await updater.requires_input(updater.new_agent_message([pb.Part(text=f"Which {rest}?")]))
            return
        if word == "fail":
            await updater.failed(updater.new_agent_message([pb.Part(text=rest)]))
            return
        answer = f"{word} {rest}".strip()
        if word == "token":
            answer = context.call_context.state["headers"].get("authorization", "none")
        await updater.add_artifact([pb.Part(text=f"done: {answer}")])
        cost = {"usage": {"cost_usd": 0.25}} if word == "cost" else None
        if cost is not None:
            event = pb.TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id)
            event.status.state = pb.TASK_STATE_COMPLETED
            event.metadata.update(cost)
            await updater.event_queue.enqueue_event(event)
            return
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: Any) -> None:
        with self._log.open("a") as log:
            log.write("cancelled\n")
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


def main(port: int, log: Path, version: str) -> None:
    """`version` is that of the protocol over JSON-RPC, or `rest` for 1.0 over HTTP+JSON alone."""
    binding = "HTTP+JSON" if version == "rest" else "JSONRPC"
    spoken = "1.0" if version == "rest" else version
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/rpc"
    card = pb.AgentCard(
        name="worker",
        description="Does what the first word says.",
        version="1",
        supported_interfaces=[pb.AgentInterface(url=url, protocol_binding=binding, protocol_version=spoken)],
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="work", name="work", description="works", tags=["work"])],
    )
    handler = DefaultRequestHandler(agent_executor=Worker(log), task_store=InMemoryTaskStore(), agent_card=card)
    if version == "rest":
        requests = create_rest_routes(handler, path_prefix="/rpc")
    else:
        requests = create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=version == "0.3")
    routes = [*create_agent_card_routes(card), *requests]
    listener.listen(128)
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical"))
    asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1.0")
