"""AgentAbroad: an agent process on another shard of the cluster, as programs and callers use it.

    editor = kernel.agent("s2/p17")
    print(await editor.send("Shorten this: …", timeout=30, budget="$0.05"))
    answer = await editor.ask(ctx, "Shorten this: …")           # in a program: its answer is journaled
    lead = Agent("lead", model=…, tools=[editor])               # as a tool of another agent

A question arrives once, whatever crashes, and is answered once. An answer comes whole: a stream of its pieces is to be
had on the shard of the agent alone. `attend_questions` is the other side: it brings the answers of the agents here to
the shards that asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lyra.agents.declaration.output import Content, content_of, text_of
from lyra.agents.session.replies import MarkedReply, Pending, Reply
from lyra.core.budgets.budget import Budget, Limits
from lyra.core.checking.check import real
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, DeadlineExceeded, LyraError
from lyra.kernel.base.acting import acting, require
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


class AgentAbroad(HandleAbroad):
    """See the module."""

    __slots__ = ()

    async def send(  # type: ignore[override]  # a message to an agent has an answer
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
        asking = asks.ask(self.address, ref, _question(message, budget, only), owner, marked=marked)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                answer = await asking
        except TimeoutError:
            if key is None:
                asks.give_up(ref)
            if not limit.expired():
                raise
            raise DeadlineExceeded(
                f"agent process {self.address} did not answer within {timeout_s:g} s", timeout_s=timeout_s
            ) from None
        except asyncio.CancelledError:  # one with a key is asked again, or forgotten with the process that asks
            if key is None and not core.stopping and (owner is None or process_lives_on(owner)):
                asks.give_up(ref)
            raise
        if key is None or owner is None:
            asks.give_up(ref)  # the asker has the answer
        if "mark" in answer:
            core.taint.mark_here(f"an answer of {self.address}")
        return self._read(answer)

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
                question = _question(message, budget, None)
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
        """Return the answer as a caller on the agent's own shard gets it, or raise why there is none."""
        if answer.get("error") is not None:
            raise error_from_row(answer["error"])
        text = bytes(answer["text"]).decode()
        if not answer["is_reply"]:
            agent = getattr(self._kernel.programs.get(answer["program"]), "__lyra_agent__", None)
            return text if agent is None or agent.output is None else agent.output.read(text)
        reply = (MarkedReply if "mark" in answer else Reply).with_usage(
            text,
            cost_usd=answer["cost_usd"],
            input_tokens=answer["input_tokens"],
            output_tokens=answer["output_tokens"],
        )
        reply.status = answer["status"]
        return reply

    async def stop(self, reason: str = "shutdown") -> None:
        """End the process in order; its work is cancelled."""
        await self.kill(reason)
        await self.wait()

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


def _question(message: Content, budget: Limits | None, only: Sequence[str] | None) -> dict[str, Any]:
    question: dict[str, Any] = {"content": content_of(message)}
    if only is not None:
        question["only"] = list(only)
    if budget is not None:
        question["budget"] = Budget.of(budget).to_data()["limits"]
    return question


def attend_questions(questions: OpenQuestions, asks: Asks) -> None:
    """Have the questions of other shards answered: those that are open, and those that come."""
    kernel = questions.kernel

    def attend(key: str, process: Process, budget: Any) -> None:
        inside = () if budget is None else (Budget.of(budget),)
        pending = questions.attend(key, process, inside=inside)
        pending._get_future().add_done_callback(lambda _: answer(key, process, pending))

    def answer(key: str, process: Process, pending: Pending) -> None:
        if pending.cancelled():
            told: dict[str, Any] = {"error": error_to_row(AgentFailed("the question was given up", status="cancelled"))}
        elif (error := pending.exception()) is not None:
            told = {"error": error_to_row(error)}
        else:
            try:
                told = _describe_answer(pending.result(), process)
            except LyraError as unfit:
                told = {"error": error_to_row(unfit)}
        asks.answer(key, told | mark_of(process))

    def cancel(key: str) -> None:
        pending = questions.pending.get(key)
        if pending is not None:
            pending.cancel()

    asks.attend, asks.cancel = attend, cancel
    for key, (pid, budget) in asks.open.items():
        process = kernel.processes.get(pid)
        if process is not None and process.exit is None:
            with suppress(LyraError):
                attend(key, process, budget)


def _describe_answer(value: Any, process: Process) -> dict[str, Any]:
    run = process.stands_for or process
    told = {"text": text_of(value).encode(), "is_reply": isinstance(value, Reply), "program": run.program}
    if isinstance(value, Reply):
        told |= {name: getattr(value, name) for name in ("cost_usd", "input_tokens", "output_tokens", "status")}
    return told
