"""A cluster as a program outside of it uses it: `lyra.cluster.connect(url)`.

    async with lyra.cluster.connect("postgresql://…") as cluster:
        job = await cluster.spawn(review, "https://…", resources={"gpu": 1})
        await cluster.send(job.address, "hurry")
        print((await job.wait()).result)

The directory says which host has a shard. A call that meets a host that is gone, or that has given the shard away, is
made again on the one that has it then, for up to `patience_s`; each call that changes something can be repeated.

`cluster.agent("s2/p17")` is an agent process as a client holds it (`ClusterAgent`). A question is put once, under a ref
of its own, and the shard of the agent keeps the answer until the client has it. In a program of a kernel elsewhere,
`ask(ctx, …)` makes the ref the key of its effect, so a replay gets the same answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Final

from lyra.agents.declaration.output import Content, content_of
from lyra.agents.session.agent_abroad import AskedAbroad, Fetch, StreamedAnswer, make_question, read_as
from lyra.agents.session.events import AgentEvent
from lyra.agents.session.replies import FeedSink, MarkedReply, Pending
from lyra.cluster import placement
from lyra.cluster.directory import Directory, PostgresDirectory, View
from lyra.cluster.event_stream import follow_pipeline
from lyra.cluster.peers import CallsUnderWay, Carrier, GrpcCarrier, PeerTls
from lyra.cluster.shared_calls import SharedBudget, SharedCalls
from lyra.core import codec
from lyra.core.budgets.budget import Budget, Limits
from lyra.core.clock import loop_clock
from lyra.core.envelope import Envelope
from lyra.core.ids import unique_id
from lyra.core.message import Message
from lyra.core.naming import PIPELINE, get_qualified_name
from lyra.core.policies.policy import Supervision
from lyra.core.rights.capability import Grant
from lyra.errors import (
    ConfigError,
    Conflict,
    DeadlineExceeded,
    LyraError,
    NoSuchProcess,
    ProcessError,
    StoreError,
    Unreachable,
)
from lyra.kernel.base.tasks import Tasks, Writer
from lyra.kernel.journal.rows import error_from_row
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.process.links import form_of
from lyra.kernel.process.process import Exit
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.registry import program_of
from lyra.kernel.remote.part import CLIENT

PATIENCE_S: Final = 30.0
_WAIT_S: Final = 20.0  # in one call for the end of a process
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0
_ANSWER_WAIT_S: Final = 20.0  # in one call for the answer


class Cluster(SharedCalls):
    """A client of a cluster; see the module."""

    def __init__(self, directory: Directory, carrier: Carrier, *, patience_s: float = PATIENCE_S) -> None:
        self.directory = directory
        self.view: View = directory.view()
        self._carrier = carrier
        self._patience_s = patience_s
        self._sent: dict[str, tuple[str, int]] = {}  # shard → as whom, and the number of the last message to it
        self._turns: dict[str, asyncio.Lock] = {}  # messages to one shard go one after the other
        self._writer: Writer | None = None
        self.within: SharedBudget | None = None  # all that this client spawns spends from it
        self._clock = loop_clock()
        self._looked_s = self._clock.monotonic()
        self._looking = asyncio.Lock()
        self.tasks = Tasks()
        self._calls = CallsUnderWay()

    async def __aenter__(self) -> Cluster:
        self._writer = Writer(asyncio.get_running_loop())
        self.tasks.start(self._watch(), name="lyra-cluster watch")
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self.within is not None and self.within.name.startswith("~"):  # of this connection; those that run spend on
            with suppress(LyraError):
                await self.within.close()
        await self.tasks.close()
        await self._calls.close()
        await self._carrier.close()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self.directory.close()

    async def refresh(self) -> View:
        """Read the directory again."""
        if self._writer is None:
            raise ProcessError("the cluster is not connected", hint="use `async with lyra.cluster.connect(…)`")
        self.view = await self._writer.submit(self.directory.view)
        self._looked_s = self._clock.monotonic()
        self._carrier.forget({row.address for row in self.view.alive()})
        return self.view

    async def _look(self, age_s: float) -> None:
        """Read the directory again, unless that was done so short a time ago: for as many callers as there are."""
        async with self._looking:
            if self._clock.monotonic() - self._looked_s >= age_s:
                await self.refresh()

    async def _watch(self) -> None:
        """Give up calls to hosts that die or freeze meanwhile."""
        while True:
            await asyncio.sleep(self.view.lease_s / 2)
            if self._calls.is_waiting:
                with suppress(LyraError):  # the directory cannot be read: the next time
                    await self._look(self.view.lease_s / 2)
                    self._calls.give_up({row.address for row in self.view.alive()})

    # ------------------------------------------------------------------ processes

    async def spawn(
        self,
        program: Any,
        *args: Any,
        shard: str | None = None,
        near: str | None = None,
        resources: Mapping[str, float] | None = None,
        pid: str | None = None,
        name: str | None = None,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        supervision: Any = None,
    ) -> RemoteHandle:
        """Start a program (or an Agent, with its budget and supervision) on the cluster; returns when it is durable. An
        existing pid of the shard gives that process.

        `budget` is its own limits, or a budget that several spend from (`await cluster.budget(…)`). With
        `connect(url, budget=…)` it lies inside that one.

        The hosts know programs by name, from what they were started with: `lyra cluster start --load FILE.py`.
        """
        word = program if isinstance(program, str) else get_qualified_name(program_of(program))
        needs = {"shard": shard, "near": near, "resources": resources}
        data: dict[str, Any] = {"program": word, "args": codec.encode(args), "pid": pid or f"c-{unique_id()}"}
        budget = getattr(program, "budget", None) if budget is None else budget
        supervision = getattr(program, "supervision", None) if supervision is None else supervision
        if supervision is not None:
            data["supervision"] = Supervision.of(supervision).to_data()
        if name is not None:
            data["name"] = name
        if priority is not None:
            data["priority"] = priority
        within = budget if isinstance(budget, SharedBudget) else self.within
        if within is not None:
            data["within"] = within.terms()
        own = {} if budget is within else Budget.of(budget).to_data()["limits"]
        seconds = [some["seconds"] for some in (own, within.limits if within else {}) if "seconds" in some]
        if seconds:
            own["seconds"] = min(seconds)
        if own:
            data["budget"] = own
        if grant is not None:
            data["grant"] = Grant.of(grant).to_data()
        where = shard or placement.place(await self.refresh(), needs)
        if where not in self.view.shards:
            raise ConfigError(f"there is no shard {where!r}", hint="lyra cluster status lists them", key="shard")
        started = await self.call_shard(where, "spawn", {"shard": where, **data})
        return RemoteHandle(self, f"{where}/{started}")

    async def execute_pipeline(
        self,
        config: Any,
        envelope: Envelope | Mapping[str, Any] | str | None = None,
        *,
        pid: str | None = None,
        shard: str | None = None,
        near: str | None = None,
        resources: Mapping[str, float] | None = None,
        **options: Any,
    ) -> AsyncGenerator[PipelineEvent, None]:
        """Run a pipeline as a durable process of the cluster and give its events, also while its shard moves; `options`
        as of `spawn`. It goes on without its listener: the same pid and shard again gives the events from the first
        one on."""
        checked = PipelineConfig.of(config)
        work = (
            Envelope.to_data(envelope) if isinstance(envelope, Envelope) else envelope if envelope is not None else ""
        )
        options |= {"shard": shard, "near": near, "resources": resources}
        handle = await self.spawn(PIPELINE, checked.to_data(), work, pid=pid, **options)
        async with aclosing(follow_pipeline(self.call_shard, handle.shard, handle.pid, checked)) as events:
            async for event in events:
                yield event

    async def follow_pipeline(self, address: str) -> AsyncGenerator[PipelineEvent, None]:
        """Give the events of a pipeline that runs somewhere, or has ended, from its first one on."""
        handle = self.process(address)
        async with aclosing(follow_pipeline(self.call_shard, handle.shard, handle.pid)) as events:
            async for event in events:
                yield event

    def process(self, address: str) -> RemoteHandle:
        """Return a handle on the process at an address."""
        if "/" not in address:
            raise ConfigError(f"{address!r} is no address", hint="an address is SHARD/PID, such as s2/p17")
        return RemoteHandle(self, address)

    def agent(self, address: str, declared: Any = None) -> ClusterAgent:
        """Return a handle on the agent process at an address: `send`, `stream`, `history`, and `ask` in a program.

        `declared` is the Agent that runs there, for answers of its output type.
        """
        return ClusterAgent(self, self.process(address), declared)

    async def send(self, address: str, message: Any) -> None:
        """Put a message in the mailbox of a process, once; returns when it is durable there. After an error it may be
        there or not."""
        shard, _, pid = self.process(address).address.partition("/")
        post = codec.encode(["message", {"to": pid, "form": form_of(message), "message": codec.encode(message)}])
        async with self._turns.setdefault(shard, asyncio.Lock()):
            while True:
                # The number counts what one sender has sent. While it is not known whether a message has arrived, its
                # number may be taken, so the next one is sent by a sender that is new to the shard.
                sender, last = self._sent.pop(shard, (f"{CLIENT}{unique_id()}", 0))
                data = {"shard": shard, "from": sender, "first": last + 1, "posts": [post]}
                if await self.call_shard(shard, "take", data) > last:
                    self._sent[shard] = sender, last + 1
                    return

    async def whereis(self, name: str) -> RemoteHandle | None:
        """Return the process of that name, asking all hosts: a name belongs to one shard. Conflict where several shards
        have one."""
        address = await self.find_name(name)
        return None if address is None else RemoteHandle(self, address)

    async def processes(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """List the processes of all hosts that answer, at the same time."""
        rows: list[dict[str, Any]] = []
        for _, answer in await self.ask_hosts("processes", {"all": everything}):
            if isinstance(answer, list):
                rows += answer
        return rows

    async def ask_hosts(
        self, method: str, data: dict[str, Any], *, timeout_s: float = 1.0, hosts: Iterable[str] | None = None
    ) -> list[tuple[str, Any]]:
        """Ask all living hosts at once; gives the answer of each, or the LyraError why there is none."""
        view = await self.refresh()
        wanted = [row for row in view.alive() if hosts is None or row.name in hosts]
        answers = await asyncio.gather(
            *[self._carrier.call(row.address, method, data, timeout_s=timeout_s) for row in wanted],
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, LyraError):
                raise answer
        return [(row.name, answer) for row, answer in zip(wanted, answers, strict=True)]

    # ------------------------------------------------------------------ calls

    async def call_shard(self, shard: str, method: str, data: dict[str, Any], *, timeout_s: float = 10.0) -> Any:
        """Call the host that has a shard, again while it moves from one host to another: for up to `patience_s` after
        the first answer that says so."""
        clock = self._clock
        until_s: float | None = None
        delay_s = _RETRY_FIRST_S
        if shard not in self.view.shards:  # their number never changes
            raise NoSuchProcess(f"there is no shard {shard[:80]!r}", hint="lyra cluster status lists them", shard=shard)
        while True:
            error: LyraError
            address = self.view.address_of(shard)
            if address is None:
                error = Conflict(f"shard {shard} is open on no host", hint="lyra cluster status says why", shard=shard)
            else:
                try:
                    return await self._calls.call(self._carrier, address, method, data, timeout_s=timeout_s)
                except (Unreachable, DeadlineExceeded) as lost:
                    error = lost
                except Conflict as elsewhere:
                    if not elsewhere.fields.get("elsewhere"):
                        raise
                    error = elsewhere
                except ProcessError as closing:
                    if type(closing) is not ProcessError:
                        raise
                    error = closing
            if until_s is None:
                until_s = clock.monotonic() + self._patience_s
            elif clock.monotonic() >= until_s:
                raise error
            await asyncio.sleep(delay_s)
            with suppress(StoreError):  # PostgreSQL restarts: the hosts are where they were
                await self._look(delay_s)
            delay_s = min(2 * delay_s, _RETRY_MOST_S)


class RemoteHandle:
    """A process of the cluster as the outside holds it."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self.address = address

    def __repr__(self) -> str:
        return f"<RemoteHandle {self.address}>"

    @property
    def pid(self) -> str:
        return self.address.partition("/")[2]

    @property
    def shard(self) -> str:
        return self.address.partition("/")[0]

    async def send(self, message: Any) -> None:
        await self._cluster.send(self.address, message)

    async def kill(self, reason: str = "killed") -> None:
        data = {"shard": self.shard, "pid": self.pid, "reason": reason}
        await self._cluster.call_shard(self.shard, "kill", data)

    async def wait(self) -> Exit[Any]:
        """Return how it ended, however often its shard moves meanwhile."""
        while True:
            ended = await self.find_end(within_s=_WAIT_S)
            if ended is not None:
                return ended

    async def find_end(self, *, within_s: float = 0.0) -> Exit[Any] | None:
        """Return how it ended; None where it lives on for so long."""
        data = {"shard": self.shard, "pid": self.pid, "within_s": within_s}
        ended = await self._cluster.call_shard(self.shard, "wait", data, timeout_s=within_s + 10.0)
        if ended is None:
            return None
        error = None if ended["error"] is None else error_from_row(ended["error"])
        return Exit(ended["reason"], ended["result"], error)


class _Connecting:
    """What `connect` gives: a Cluster to be awaited, or entered with `async with`."""

    def __init__(self, make: Callable[[], Awaitable[Cluster]]) -> None:
        self._make = make
        self._cluster: Cluster | None = None

    def __await__(self) -> Generator[Any, None, Cluster]:
        return self._make().__await__()

    async def __aenter__(self) -> Cluster:
        self._cluster = await self._make()
        return self._cluster

    async def __aexit__(self, *_: object) -> None:
        if self._cluster is not None:
            await self._cluster.close()


def connect(
    url: str,
    *,
    budget: Any = None,
    patience_s: float = PATIENCE_S,
    tls: PeerTls | Mapping[str, str] | None = None,
) -> _Connecting:
    """Connect to the cluster in a PostgreSQL database: `async with connect(url) as cluster`, or await it.

    With `budget` all that is spawned spends from that one budget, on whatever shard it runs. `tls` are the files with
    which hosts and clients prove themselves, where the hosts have them: `{"cert": …, "key": …, "ca": …}`.
    """
    proof = PeerTls.load(tls)

    async def make() -> Cluster:
        directory = await asyncio.to_thread(PostgresDirectory, url, make=False)
        cluster = Cluster(directory, GrpcCarrier(directory.secret, proof), patience_s=patience_s)
        await cluster.__aenter__()
        if budget is not None:
            try:
                cluster.within = await cluster.budget(budget)
            except BaseException:
                await cluster.close()
                raise
        return cluster

    return _Connecting(make)


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
            data = {"ref": ref, "to": self.pid, "by": "a client", "within_s": _ANSWER_WAIT_S, **encoded}
            data["message"] = codec.encode(question)
            if streamed is not None:
                data["stream"] = True
            try:
                answer = None
                while answer is None:
                    answer = await self._call("ask", data, _ANSWER_WAIT_S + 10.0)
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
