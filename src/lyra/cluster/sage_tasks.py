"""Sub-agents of Sage sessions on a cluster: the program that hosts run, and how a session reaches them.

A host knows the program `sage:placed`, whose argument says what the sub-agent is (`lyra.sage.agent.tasks.placed`). It
is an agent like any other: its turns are in the journal of its shard, and go on elsewhere when its host is killed. A
session places one under a pid made of its own id and the task's, so placing it twice gives the same process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.core.rights.capability import Grant
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.agents.session.events import AgentEvent
    from lyra.cluster.client import Cluster
    from lyra.cluster.peers import PeerTls
    from lyra.kernel.kernel import Kernel

_PATIENCE_S: Final = 10.0  # for a cluster that is to begin a sub-agent, which begins here otherwise


async def be_placed(ctx: Any, told: dict[str, Any]) -> None:
    """Be a sub-agent of a session."""
    from lyra.agents.turn.loop import serve
    from lyra.sage.agent.tasks.placed import make_placed_agent

    await serve(ctx, make_placed_agent(told))


class LateHandle:
    """`AgentProcess`, imported when a kernel that runs no agents is asked for one."""

    def __new__(cls, kernel: Any, process: Any) -> Any:
        from lyra.agents.session.agent_process import AgentProcess

        return AgentProcess(kernel, process)

    @staticmethod
    def abroad(kernel: Any, address: str) -> Any:
        from lyra.agents.session.agent_process import AgentProcess

        return AgentProcess.abroad(kernel, address)


be_placed.__module__, be_placed.__qualname__ = "sage", "placed"
vars(be_placed)["__lyra_agent__"] = None  # it can be asked; which agent it is, its argument says
vars(be_placed)["__lyra_handle__"] = LateHandle


def register_tasks(kernel: Kernel) -> None:
    """Let a kernel run sub-agents of sessions."""
    kernel.register(be_placed)


class ClusterPlacer:
    """The cluster of a session; by its URL it is reached when it is first needed: `async with ClusterPlacer(url)`."""

    def __init__(self, cluster: str | Cluster, tls: PeerTls | None = None) -> None:
        self._tls = tls
        self._url = cluster if isinstance(cluster, str) else ""
        self._cluster = None if isinstance(cluster, str) else cluster
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> ClusterPlacer:
        return self

    async def __aexit__(self, *_: object) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None and self._url:
            await cluster.close()

    async def _connect(self) -> Cluster:
        async with self._connecting:
            if self._cluster is None:
                from lyra.cluster.client import connect

                self._cluster = await connect(self._url, patience_s=_PATIENCE_S, tls=self._tls)
            return self._cluster

    async def place(self, task_id: str, told: dict[str, Any]) -> str:
        """Begin a sub-agent on the least loaded host, or find the one of this id; gives its address."""
        cluster = await self._connect()
        pid = f"sage-{task_id}"
        for row in await cluster.processes():
            if row["pid"] == pid:
                return str(row["address"])
        handle = await cluster.spawn(
            "sage:placed", told, pid=pid, budget=told["limits"] or None, grant=Grant.from_data(told["grant"])
        )
        return handle.address

    async def ask(
        self, address: str, content: Any, *, key: str, marked: bool, tell: Callable[[AgentEvent], object]
    ) -> dict[str, Any]:
        """Return the answer as it travels, also after the agent's host was killed; `tell` gets its events."""
        from lyra.agents.session.replies import MarkedReply

        agent = (await self._connect()).agent(address)
        message = MarkedReply(content) if marked and isinstance(content, str) else content
        return await agent.fetch(message, key=key, tell=tell)

    async def give_up(self, address: str, key: str) -> None:
        """Withdraw a question."""
        with suppress(LyraError):
            await (await self._connect()).agent(address).let_go(f"={key}")

    async def end(self, address: str) -> None:
        """End a sub-agent that its session has forgotten."""
        with suppress(LyraError):
            await (await self._connect()).process(address).kill("shutdown")
