"""Questions to agent processes of other shards, each with one answer.

    asker       post `ask` with a `ref` of its own; the answer is kept until the asker has it, or gives up (`withdraw`)
    agent       the question is a message in the agent's mailbox, in the batch in which it was taken; the turn that
                answers it is journaled like any other, and its answer is a post, also after a restart in between

A question asked again under the same `ref` gets the same answer: the agent is not asked twice. What an agent is, the
kernel does not know: the layer above attends the questions that are open here (`attend`, `cancel`) and says how they
ended (`answer`).

A client of the cluster asks by calls (`ask_here`): its answer is kept on the agent's shard until the client has it.
Pieces of an answer are not durable: who asked for them reads them by calls (`read_pieces`) while they are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context as ContextVars
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core import codec
from lyra.core.limits import ANSWERS_KEPT
from lyra.errors import AgentFailed, ConfigError, Conflict, LyraError, NoSuchProcess, Overloaded, ProcessError
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.journal.rows import error_to_row
from lyra.kernel.process.process import Exit, Process
from lyra.kernel.programs.handle import make_stopped_error
from lyra.kernel.remote.messages import take_mark
from lyra.kernel.remote.part import CLIENT, RemotePart, read_tables, split_address

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

OUTSIDE = "~"  # begins the ref of a caller who is not there any more after a restart
_LAST_PIECES_KEPT: Final = 64  # answers that are over, and whose reader has not read all of them


class Asks(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "asks"
    SENDS: ClassVar[frozenset[str]] = frozenset({"ask", "answer", "withdraw"})
    KEEPS: ClassVar[frozenset[str]] = frozenset({"answer", "withdraw"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._parts = parts
        self._remote = remote
        self.asked: dict[str, Any] = {}  # ref → pid of the asker ("": outside), address, and the answer or None
        # shard/ref → pid here that is asked, the limits of the answer or None, and whether its pieces are wanted
        self.open: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}  # ~/ref of a client → pid that was asked, and the answer; None once it has that
        # Filled in by the layer above, once it has begun: a question is open, one was withdrawn.
        self.attend: Callable[[str, Process, Any, bool], None] | None = None
        self.cancel: Callable[[str], None] | None = None
        self._pieces: dict[str, Any] = {}  # shard/ref → what has the pieces of its answer (`read(life, after, wait)`)
        # Filled in by the cluster: how another shard is called.
        self.call: Callable[..., Awaitable[Any]] | None = None
        self._waiting: dict[str, list[Any]] = {}  # ref → those that wait for the answer; shard/ref: for its pieces
        parts.core.subsystems.stop.append(self._stop)
        parts.core.after_abort.append(self._let_go)

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "ask":
            self.asked[data["ref"]] = [pid, f"{shard}/{data['to']}", None]
        elif what == "withdraw":
            self.asked.pop(data["ref"], None)
        else:
            self.open.pop(f"{shard}/{data['ref']}", None)

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what == "withdraw":
            self.open.pop(f"{shard}/{data['ref']}", None)
        elif data["ref"] in self.asked:
            self.asked[data["ref"]][2] = data

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        """Remember that a question is open here, or forget one whose asker has its answer."""
        if "open" in data:
            self.open[data["open"]] = [pid, data.get("budget"), data.get("stream") is True]
        elif "kept" in data:
            self.open.pop(data["kept"], None)
            self.kept.pop(data["kept"], None)
            self.kept[data["kept"]] = [pid, data["answer"]]
            while len(self.kept) > ANSWERS_KEPT:
                del self.kept[next(iter(self.kept))]
        else:
            self.asked.pop(data["ref"], None)

    def dump(self) -> Any:
        return {"asked": self.asked, "open": self.open, "kept": self.kept}

    def load(self, data: Any) -> None:
        tables = read_tables(data, ("asked", "open", "kept"))
        self.asked, self.open, self.kept = tables["asked"], tables["open"], tables["kept"]

    def on_restored(self) -> None:
        for ref in [ref for ref in self.asked if ref.startswith(OUTSIDE)]:
            self.give_up(ref)

    # ------------------------------------------------------------------ asking

    async def ask(
        self,
        address: str,
        ref: str,
        message: dict[str, Any],
        process: Process | None,
        *,
        marked: dict[str, Any],
        stream: bool = False,
    ) -> dict[str, Any]:
        """Return the answer to a question; a second time under one `ref` that of the first. With `stream` its pieces
        are kept for who reads them meanwhile."""
        kept = self.asked.get(ref)
        if kept is None:
            shard, pid = split_address(address)
            owner = "" if process is None else process.pid
            by = self._remote.address_of("" if process is None else process.known_as)
            data = {"ref": ref, "to": pid, "by": by, "message": self._parts.mailboxes.encode(message), **marked}
            if stream:
                data["stream"] = True
            self._remote.post(shard, "ask", data, pid=owner)
        elif kept[1] != address:
            raise ConfigError(f"{ref!r} names a question to {kept[1]}, and not to {address}", key="key")
        while self.asked[ref][2] is None:
            waiting = self._waiting.setdefault(ref, [])
            if process is not None and process.stepping:
                await suspend(process, waiting)
            else:
                future: asyncio.Future[None] = self._core.loop.create_future()
                waiting.append(future)
                self._core.scheduler.poke()
                await future
        answer: dict[str, Any] = await self._remote.get_blobs(self.asked[ref][2])
        return answer

    def give_up(self, ref: str) -> None:
        """Withdraw a question, or forget its answer."""
        self._waiting.pop(ref, None)
        kept = self.asked.get(ref)
        if kept is not None and kept[2] is None:
            self._remote.post(split_address(kept[1])[0], "withdraw", {"ref": ref}, pid=kept[0], refusable=False)
        elif kept is not None:
            self._remote.note(self, {"ref": ref}, pid=kept[0])

    def _stop(self) -> None:
        for ref in self._waiting:
            asked = self.asked.get(ref)
            closing = ProcessError(f"shard {self._remote.shard} is being closed", shard=self._remote.shard)
            self._resume(ref, closing if asked is None else make_stopped_error(asked[1]))

    def _let_go(self, error: LyraError) -> None:
        for ref in self._waiting:
            self._resume(ref, error)

    def _resume(self, ref: str, error: LyraError) -> None:
        for waker in self._waiting[ref]:
            if isinstance(waker, asyncio.Future):
                resume(waker, error)

    # ------------------------------------------------------------------ answering

    def answer(self, key: str, answer: dict[str, Any]) -> None:
        """Post the answer to a question that is open here; nothing, where it has one or was withdrawn."""
        if key in self.open and not self._core.stopping and self._core.failure is None:
            shard, ref = split_address(key)
            pid = self.open[key][0]
            if shard == CLIENT:
                self._keep(key, pid, self._remote._put_blobs(answer))
            else:
                self._remote.post(shard, "answer", {**answer, "ref": ref}, pid=pid, refusable=False)

    def _keep(self, key: str, pid: str, answer: dict[str, Any] | None) -> None:
        """Keep the answer to a question of a client, or only that it needs none any more."""
        self._remote.note(self, {"kept": key, "answer": answer}, pid=pid)
        for waker in self._waiting.pop(key, ()):
            resume(waker)

    def process_ended(self, process: Process, how: Exit[Any]) -> None:
        """Answer what the process was asked and has not answered; take back what it has asked."""
        for key in [key for key, kept in self.open.items() if kept[0] == process.pid]:
            error = how.error if isinstance(how.error, LyraError) else None
            told = AgentFailed(f"agent process {process.pid} ended ({how.reason})", pid=process.pid, status=how.reason)
            self.answer(key, {"error": error_to_row(error or told)})
        for ref in [ref for ref, kept in self.asked.items() if kept[0] == process.pid]:
            self.give_up(ref)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        key = f"{sender}/{data['ref']}"
        if what == "answer":
            for waker in self._waiting.pop(data["ref"], ()):
                resume(waker)
        elif what == "withdraw":
            if self.cancel is not None:
                self.cancel(key)
        else:
            try:
                self._take_question(key, data)
            except LyraError as refusal:
                answer = {"ref": data["ref"], "error": error_to_row(refusal)}
                self._remote.post(sender, "answer", answer, refusable=False)

    def _take_question(self, key: str, data: dict[str, Any]) -> None:
        process = self._core.lookup(data["to"])
        if process is None or process.exit is not None:
            raise NoSuchProcess(f"no agent process {data['to']!r} on shard {self._remote.shard}", pid=data["to"])
        run = process.stands_for or process
        program = self._parts._programs.get(run.program)
        if program is not None and not hasattr(program, "__lyra_agent__"):
            raise ConfigError(f"process {process.pid} runs {run.program}, and no agent", pid=process.pid)
        if self._parts.mailboxes.must_wait(process):
            raise Overloaded(f"the mailbox of {process.pid} is full", hint="ask it again later", pid=process.pid)
        message = codec.decode(data["message"])
        budget = message.pop("budget", None)
        stream = data.get("stream") is True
        noted = {"open": key, "budget": budget, **({"stream": True} if stream else {})}
        self._remote.note(self, noted, pid=process.pid)
        take_mark(process, data, "a question of", data["by"])
        if self.attend is not None:
            self.attend(key, process, budget, stream)
        self._parts.mailboxes.deliver(process, {"lyra.ask": key, **message})

    # ------------------------------------------------------------------ clients

    async def ask_here(self, data: dict[str, Any], *, within_s: float) -> dict[str, Any] | None:
        """Return the answer to a question of a client, the same for each question under one `ref`; None where it has
        not come for so long."""
        core, key = self._core, f"{CLIENT}/{data['ref']}"
        core.raise_if_closed()
        known = self.open.get(key) or self.kept.get(key)
        if known is None:
            if core.draining:
                raise ProcessError(f"shard {self._remote.shard} is being closed", shard=self._remote.shard)
            # In a context of its own: the task that answers the call is not what the agent acts for.
            ContextVars().run(self._take_question, key, data)
        elif (process := core.lookup(data["to"])) is not None and process.pid != known[0]:
            raise ConfigError(f"{data['ref']!r} names a question to {known[0]}, and not to {data['to']}", key="key")
        assert core.journal is not None
        await core.journal.wait_until_durable(core.journal.seq)
        if key in self.open and within_s:
            await self._wait(key, within_s)
        await core.journal.wait_until_durable(core.journal.seq)
        if key in self.open:
            return None
        kept = self.kept.get(key)
        if kept is None or kept[1] is None:
            raise Conflict(f"the question {data['ref']!r} was given up, or its answer was taken", key="key")
        answer: dict[str, Any] = await self._remote.get_blobs(kept[1])
        return answer

    async def let_go(self, ref: str) -> None:
        """Give a question of a client up, or forget its answer, which the client has."""
        key = f"{CLIENT}/{ref}"
        known = self.open.get(key) or self.kept.get(key)
        was_open = key in self.open
        if known is not None and (was_open or known[1] is not None):
            self._keep(key, known[0], None)
            if was_open and self.cancel is not None:
                self.cancel(key)
        assert self._core.journal is not None
        await self._core.journal.wait_until_durable(self._core.journal.seq)

    async def _wait(self, key: str, within_s: float) -> None:
        """Wait until an answer is kept or its pieces begin, for so long."""
        future: asyncio.Future[None] = self._core.loop.create_future()
        waiting = self._waiting.setdefault(key, [])
        waiting.append(future)
        clock = self._core.clock
        timer = clock.call_at(clock.monotonic() + within_s, lambda: resume(future))
        self._core.scheduler.poke()
        try:
            await future
        finally:
            timer.cancel()
            if future in waiting:
                waiting.remove(future)
            if not waiting:
                self._waiting.pop(key, None)

    # ------------------------------------------------------------------ pieces

    def begin_pieces(self, key: str, pieces: Any) -> None:
        """Have the pieces of an answer here for its reader; only the last few of those that are over are kept."""
        over = [old for old in self._pieces if old not in self.open]
        for old in over[: max(0, len(over) - _LAST_PIECES_KEPT)]:
            del self._pieces[old]
        self._pieces[key] = pieces
        for waker in self._waiting.pop(key, ()):
            resume(waker)

    async def read_pieces(self, key: str, life: str, after: int, wait_s: float) -> dict[str, Any]:
        """Return the pieces of an answer behind a number, waiting for the next one; none where the question is not
        here, or its answer is over and read."""
        self._core.raise_if_closed()
        if key not in self._pieces:
            await self._wait(key, wait_s)
        pieces = self._pieces.get(key)
        if pieces is None:
            return {"life": "", "first": 0, "pieces": [], "over": False}
        told: dict[str, Any] = await pieces.read(life, after, wait_s)
        if told["over"] and not told["pieces"]:
            self._pieces.pop(key, None)
        return told
