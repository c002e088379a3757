"""Agent processes on other shards of the cluster, as programs, callers and clients of the cluster use them.

    editor = kernel.agent("s2/p17")                             # on a shard; `cluster.agent("s2/p17")` outside
    print(await editor.send("Shorten this: …", timeout=30, budget="$0.05"))
    answer = await editor.ask(ctx, "Shorten this: …")           # in a program: its answer is journaled
    lead = Agent("lead", model=…, tools=[editor])               # as a tool of another agent

A question arrives once, whatever crashes, and is answered once. The pieces of a stream are read from the host that has
the agent; they go on where they were when its shard moves (`pieces`). `attend_questions` is the other side: it brings
the answers of the agents here to those who asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.declaration.output import Content, content_of, text_of
from lyra.agents.session.agent_handle import AgentHandle, check_rules, make_late_error
from lyra.agents.session.pieces import Joined, Pieces, read_event
from lyra.agents.session.replies import FeedSink, MarkedReply, Pending, Reply, Sink
from lyra.core.budgets.budget import Budget, Limits
from lyra.core.checking.check import real
from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, LyraError
from lyra.kernel.base.acting import acting, require
from lyra.kernel.base.tasks import Tasks
from lyra.kernel.journal.rows import error_from_row, error_to_row
from lyra.kernel.process.cut_short import process_lives_on
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import upcoming_key
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.journaled_call import journal_wait
from lyra.kernel.remote.asks import OUTSIDE, Asks
from lyra.kernel.remote.handle import HandleAbroad
from lyra.kernel.remote.messages import mark_of
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.agents.session.open_questions import OpenQuestions

_WAIT_S: Final = 20.0  # in one call for the next piece
_CALL_S: Final = 10.0
_LAST_PIECES_S: Final = 3.0  # after the answer itself
_RETRY_FIRST_S: Final = 0.05
_RETRY_MOST_S: Final = 1.0

Fetch = Callable[
    ["StreamedAnswer | None"], Awaitable[dict[str, Any]]
]  # brings an answer, given what reads its pieces meanwhile


class AskedAbroad(AgentHandle[Any]):
    """An agent process elsewhere; how a question gets there is said by those below."""

    __slots__ = ()

    address: str

    async def send(
        self,
        message: Content,
        *,
        timeout: float | None = None,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        key: str | None = None,
    ) -> Any:
        """Return the answer, as `AgentProcess.send` does.

        A question with a `key` may be asked again under it, also after a crash: it gets the answer of the first, and
        the agent is not asked twice. An effect's `idempotency_key` is one. In a program `ask` needs none.
        """
        timeout_s = None if timeout is None else real(timeout, "timeout")
        rules = None if only is None else check_rules(only)
        fetch = self._put(message, make_question(content_of(message), budget, rules), key)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return self._read(await fetch(None))
        except TimeoutError:
            if timeout_s is None or not limit.expired():
                raise
            raise make_late_error(self.address, timeout_s) from None

    def _put(self, message: Content, question: dict[str, Any], key: str | None) -> Fetch:
        """Return what puts a question and brings its answer."""
        raise NotImplementedError

    def _read(self, answer: dict[str, Any]) -> Any:
        """Return an answer as its caller gets it, or raise why there is none."""
        raise NotImplementedError

    def _outside(self) -> tuple[Any, Tasks]:
        """Return what a Pending needs of a kernel, and who holds the tasks of a stream."""
        raise NotImplementedError

    async def _call(self, method: str, data: dict[str, Any], timeout_s: float) -> Any:
        """Call the host that has the agent's shard."""
        raise NotImplementedError

    async def _begin_stream(
        self,
        message: Content,
        content: Any,
        budget: Limits | None,
        rules: tuple[str, ...] | None,
        *,
        waits: bool,  # noqa: ARG002
    ) -> Pending[Any]:
        fetch = self._put(message, make_question(content, budget, rules), None)
        kernel, tasks = self._outside()
        streamed = StreamedAnswer(kernel, self._call, tasks)
        pending: Pending[Any] = Pending(streamed, "", self.address, (), Sink(kernel))  # type: ignore[arg-type]
        streamed.bring(pending, fetch, self._read)
        return pending

    def __lyra_tool__(self) -> Tool:
        """Return the tool by which another agent asks this process."""

        async def ask(ctx: Any, task: str, context: str = "") -> str:
            """Args:
            task: what is to be done, complete in itself
            context: what it has to know for that, as it cannot see this conversation
            """
            return text_of(await self.ask(ctx, f"{task}\n\nContext:\n{context}" if context else task))

        name = "".join(char if char.isascii() and char.isalnum() else "_" for char in self.address)
        about = f"Ask the agent {self.address} to do a piece of work."
        return tool(ask, name=f"agent_{name}", description=about, harmless=True, trusted=True)


class StreamedAnswer:
    """Brings one streamed answer: its pieces by calls, and the answer itself. It is the `questions` of its Pending."""

    def __init__(self, kernel: Any, call: Callable[..., Awaitable[Any]], tasks: Tasks) -> None:
        self.kernel = kernel
        self.key = ""  # of the question, where the agent is
        self.mark: Callable[[], object] | None = None  # marks who reads text of an agent that is marked
        self._call = call
        self._tasks = tasks
        self._is_marked = False
        self._bringing: asyncio.Task[None] | None = None

    def bring(self, pending: Pending[Any], fetch: Fetch, read: Callable[[dict[str, Any]], Any]) -> None:
        self._bringing = self._tasks.start(self._bring(pending, fetch, read), name=f"lyra-stream {pending.pid}")

    def give_up(self, pending: Pending[Any]) -> None:  # noqa: ARG002 (as of OpenQuestions)
        if self._bringing is not None:
            self._bringing.cancel()

    def mark_reader(self, pending: Pending[Any]) -> None:  # noqa: ARG002 (as of OpenQuestions)
        if self._is_marked and self.mark is not None:
            self.mark()

    async def _bring(self, pending: Pending[Any], fetch: Fetch, read: Callable[[dict[str, Any]], Any]) -> None:
        sink, joined = pending.sink, Joined()
        assert sink is not None
        reading = self._tasks.start(self._read_pieces(sink, joined), name=f"lyra-pieces {pending.pid}")
        try:
            answer = await fetch(self)
            await asyncio.wait({reading}, timeout=_LAST_PIECES_S)
            value = read(answer)
            reading.cancel()
            for event in joined.finish(bytes(answer["text"]).decode()) if answer.get("error") is None else ():
                sink.put(event)
            pending.answer(value)
        except LyraError as error:
            pending.fail(error)
        except asyncio.CancelledError:
            if not pending.done():
                pending.fail(AgentFailed(f"agent process {pending.pid} was not waited for", status="closed"))
            raise
        finally:
            reading.cancel()

    async def _read_pieces(self, sink: Sink, joined: Joined) -> None:
        """Read pieces until the last one, from whichever host has the agent."""
        life, after, delay_s = "", 0, _RETRY_FIRST_S
        while True:
            if sink.full:
                await sink.room()
            try:
                data = {"key": self.key, "life": life, "after": after, "wait_s": _WAIT_S}
                told = await self._call("pieces", data, _WAIT_S + _CALL_S) if self.key else None
            except LyraError:  # its shard moves
                told = None
            if told is None or not told["life"]:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)
                continue
            delay_s = _RETRY_FIRST_S
            if told["life"] != life:
                life, after = told["life"], told["first"] - 1
                joined.begin()
            self._is_marked = self._is_marked or told["marked"]
            for number, piece in enumerate(told["pieces"], told["first"]):
                if number > after:
                    after, event = number, read_event(piece)
                    for new in joined.feed(event) if event is not None else ():
                        sink.put(new)
            if told["over"]:
                return


class AgentAbroad(AskedAbroad, HandleAbroad):  # type: ignore[misc]  # a message to an agent has an answer
    """An agent process on another shard, as its kernel's programs and callers use it."""

    __slots__ = ()

    def _put(self, message: Content, question: dict[str, Any], key: str | None) -> Fetch:
        core = self._kernel.core
        core.raise_if_closed()
        require("process.send", self.address)
        process: Process | None = acting()
        owner = process if process is not None and process.core is core else None
        asks: Asks = core.remote.asks
        ref = f"={key}" if key is not None else f"{OUTSIDE}{core.entropy.text(12)}"
        marked = {"mark": {"own": False}} if type(message) is MarkedReply else {}
        if owner is not None:
            marked |= mark_of(owner)

        async def fetch(streamed: StreamedAnswer | None) -> dict[str, Any]:
            if streamed is not None:
                streamed.key = core.remote.address_of(ref)
                streamed.mark = lambda: core.taint.mark_here(f"an answer of {self.address}")
            try:
                answer = await asks.ask(self.address, ref, question, owner, marked=marked, stream=streamed is not None)
            except asyncio.CancelledError:  # one with a key is asked again, or forgotten with the process that asks
                if key is None and not core.stopping and (owner is None or process_lives_on(owner)):
                    asks.give_up(ref)
                raise
            if key is None or owner is None:
                asks.give_up(ref)  # the asker has the answer
            if "mark" in answer:
                core.taint.mark_here(f"an answer of {self.address}")
            return answer

        return fetch

    async def ask(self, ctx: Context, message: Content, *, budget: Limits | None = None) -> Any:
        """Return the answer in a program, whose journal has it: a replay does not ask again."""
        process = ctx.own_process
        core = process.core
        process_key = upcoming_key(process)
        asks: Asks = core.remote.asks
        ref = f"{process.pid}~{process.life}:{process_key}"

        async def wait() -> Any:
            if not process.grant.is_all:
                ctx.may_send(self.address, None)
            try:
                question = make_question(content_of(message), budget, None)
                return await asks.ask(self.address, ref, question, process, marked=mark_of(process))
            except BaseException:
                if process_lives_on(process):
                    asks.give_up(ref)
                raise

        answer = await journal_wait(process, f"answer of {self.address}", wait)
        if ref in asks.asked and asks.asked[ref][2] is not None:
            asks.give_up(ref)
        if "mark" in answer:
            core.taint.mark(process.pid, f"an answer of {self.address}")
        return self._read(answer)

    def _read(self, answer: dict[str, Any]) -> Any:
        return read_answer(self._kernel, answer)

    def _outside(self) -> tuple[Any, Tasks]:
        return self._kernel, self._kernel.core.tasks

    async def _call(self, method: str, data: dict[str, Any], timeout_s: float) -> Any:
        shard = self.address.partition("/")[0]
        call = self._kernel.core.remote.asks.call
        return None if call is None else await call(shard, method, {"shard": shard, **data}, timeout_s=timeout_s)

    async def history(self) -> tuple[Message, ...]:
        require("process.send", self.address)
        told = await self._call("history", {"pid": self.address.partition("/")[2]}, _CALL_S)
        if told["marked"]:
            self._kernel.core.taint.mark_here(f"the conversation of {self.address}")
        return tuple(Message.from_data(message) for message in told["messages"])


def read_answer(kernel: Any, answer: dict[str, Any]) -> Any:
    """Return the answer as a caller on the agent's own shard gets it, or raise why there is none."""
    agent = None
    if kernel is not None and answer.get("error") is None and not answer["is_reply"]:
        agent = getattr(kernel.programs.get(answer["program"]), "__lyra_agent__", None)
    return read_as(agent, answer)


def read_as(agent: Any, answer: dict[str, Any]) -> Any:
    """Return the answer of an agent that is declared so, or of one that answers in text."""
    if answer.get("error") is not None:
        raise error_from_row(answer["error"])
    text = bytes(answer["text"]).decode()
    if not answer["is_reply"]:
        return text if agent is None or agent.output is None else agent.output.read(text)
    reply = (MarkedReply if "mark" in answer else Reply).with_usage(
        text,
        cost_usd=answer["cost_usd"],
        input_tokens=answer["input_tokens"],
        output_tokens=answer["output_tokens"],
    )
    reply.status = answer["status"]
    return reply


def make_question(content: Any, budget: Limits | None, rules: Sequence[str] | None) -> dict[str, Any]:
    """Return a question as it travels."""
    question: dict[str, Any] = {"content": content}
    if rules is not None:
        question["only"] = list(rules)
    if budget is not None:
        question["budget"] = Budget.of(budget).to_data()["limits"]
    return question


# ---------------------------------------------------------------------- where the agents are


def attend_questions(questions: OpenQuestions, asks: Asks) -> None:
    """Have the questions of other shards and of clients answered: those that are open, and those that come."""
    kernel = questions.kernel

    def attend(key: str, process: Process, budget: Any, is_streamed: bool) -> None:
        inside = () if budget is None else (Budget.of(budget),)
        pieces = Pieces(kernel, process.pid) if is_streamed else None
        if pieces is not None:
            asks.begin_pieces(key, pieces)
        sink = None if pieces is None else FeedSink(kernel, pieces.put)
        pending = questions.attend(key, process, inside=inside, sink=sink)
        pending._get_future().add_done_callback(lambda _: answer(key, process, pending, pieces))

    def answer(key: str, process: Process, pending: Pending, pieces: Pieces | None) -> None:
        if pending.cancelled():
            told: dict[str, Any] = {"error": error_to_row(AgentFailed("the question was given up", status="cancelled"))}
        elif (error := pending.exception()) is not None:
            told = {"error": error_to_row(error)}
        else:
            try:
                told = describe_answer(pending.result(), process)
            except LyraError as unfit:
                told = {"error": error_to_row(unfit)}
        asks.answer(key, {**told, "spent": process.spent.to_data()} | mark_of(process))
        if pieces is not None:
            pieces.end()

    def cancel(key: str) -> None:
        pending = questions.pending.get(key)
        if pending is not None:
            pending.cancel()

    asks.attend, asks.cancel = attend, cancel
    for key, (pid, budget, *is_streamed) in list(asks.open.items()):
        process = kernel.processes.get(pid)
        if process is not None and process.exit is None:
            with suppress(LyraError):
                attend(key, process, budget, is_streamed == [True])


def describe_answer(value: Any, process: Process) -> dict[str, Any]:
    """Return an answer as it travels."""
    run = process.stands_for or process
    told = {"text": text_of(value).encode(), "is_reply": isinstance(value, Reply), "program": run.program}
    if isinstance(value, Reply):
        told |= {name: getattr(value, name) for name in ("cost_usd", "input_tokens", "output_tokens", "status")}
    return told
