"""An agent process of a cluster as a client holds it: `cluster.agent("s2/p17")`.

A client asks by calls, made again while the agent's shard moves: the question is put once, under a ref of its own, and
the agent's shard keeps the answer until the client has it. A program of a kernel elsewhere asks with `ask(ctx, …)`: the
ref is the key of its effect, so a replay gets the same answer. Pieces of a stream are read as between shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.declaration.output import Content, content_of
from lyra.agents.session.agent_abroad import AskedAbroad, Fetch, StreamedAnswer, make_question, read_as
from lyra.agents.session.events import AgentEvent
from lyra.agents.session.replies import FeedSink, MarkedReply, Pending
from lyra.core import codec
from lyra.core.budgets.budget import Limits
from lyra.core.ids import unique_id
from lyra.core.message import Message
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.programs.context import Context
from lyra.kernel.remote.part import CLIENT

if TYPE_CHECKING:
    from lyra.cluster.client import Cluster, RemoteHandle

_WAIT_S: Final = 20.0  # in one call for the answer


class _NoKernel:
    """What a Pending asks of a kernel, where there is none."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = self.scheduler = self
        self.journal = None

    def hand_over(self) -> None:
        """There are no processes that could run first."""


class ClusterAgent(AskedAbroad):
    """See the module. `declared` is the Agent that the process runs, for answers of its output type; else they are
    text."""

    def __init__(self, cluster: Cluster, handle: RemoteHandle, declared: Any = None) -> None:
        self._cluster = cluster
        self._declared = declared
        self.address, self.shard, self.pid = handle.address, handle.shard, handle.pid
        self.kill, self.wait = handle.kill, handle.wait

    def __repr__(self) -> str:
        return f"<ClusterAgent {self.address}>"

    def _put(self, message: Content, question: dict[str, Any], key: str | None) -> Fetch:
        ref = unique_id() if key is None else f"={key}"
        encoded = {"mark": {"own": False}} if type(message) is MarkedReply else {}

        async def fetch(streamed: StreamedAnswer | None) -> dict[str, Any]:
            if streamed is not None:
                streamed.key = f"{CLIENT}/{ref}"
            data = {"ref": ref, "to": self.pid, "by": "a client", "within_s": _WAIT_S, **encoded}
            data["message"] = codec.encode(question)
            if streamed is not None:
                data["stream"] = True
            try:
                answer = None
                while answer is None:
                    answer = await self._call("ask", data, _WAIT_S + 10.0)
            except asyncio.CancelledError:
                if key is None:
                    self._cluster.tasks.start(self.let_go(ref), name=f"lyra-give-up {self.address}")
                raise
            if key is None:
                self._cluster.tasks.start(self.let_go(ref), name=f"lyra-answered {self.address}")
            told: dict[str, Any] = answer
            return told

        return fetch

    async def let_go(self, ref: str) -> None:
        """Give a question up, or forget its answer."""
        with suppress(LyraError):  # the shard forgets it some time
            await self._call("let_go", {"ref": ref}, 10.0)

    async def ask(self, ctx: Context, message: Content, *, budget: Limits | None = None) -> Any:
        """Return the answer in a program of a kernel of one's own, whose journal has it."""
        question = make_question(content_of(message), budget, None)

        async def put(_address: str, *, idempotency_key: str) -> dict[str, Any]:
            return await self._put(message, question, idempotency_key)(None)

        answer = await ctx.do(put, self.address, idempotent=True)
        if "mark" in answer:
            ctx.own_process.core.taint.mark(ctx.own_process.pid, f"an answer of {self.address}")
        return self._read(answer)

    async def fetch(self, message: Content, *, key: str, tell: Callable[[AgentEvent], object]) -> dict[str, Any]:
        """Return the answer as it travels, and tell what happens on the way. A failure is an answer, too."""
        question = make_question(content_of(message), None, None)
        kernel, tasks = self._outside()
        streamed = StreamedAnswer(kernel, self._call, tasks)
        pending: Pending[Any] = Pending(streamed, "", self.address, (), FeedSink(kernel, tell))  # type: ignore[arg-type]
        streamed.bring(pending, self._put(message, question, key), lambda answer: answer)
        answer: dict[str, Any] = await pending
        return answer

    async def history(self) -> tuple[Message, ...]:
        told = await self._call("history", {"pid": self.pid}, 10.0)
        return tuple(Message.from_data(message) for message in told["messages"])

    def _read(self, answer: dict[str, Any]) -> Any:
        return read_as(self._declared, answer)

    def _outside(self) -> tuple[Any, Tasks]:
        return _NoKernel(), self._cluster.tasks

    async def _call(self, method: str, data: dict[str, Any], timeout_s: float) -> Any:
        return await self._cluster.call_shard(self.shard, method, {"shard": self.shard, **data}, timeout_s=timeout_s)
