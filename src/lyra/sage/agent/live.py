"""LiveSession: one session that is open: its kernel, its agent, its turns, its files as they were.

    async with LiveSession(HeadlessOptions(model=…, attended=True)) as session:
        async for line in session.send("Fix the failing test"):
            …

The conversation is that of an agent process in the session's own store, so nothing that was acknowledged is lost by
`kill -9`. A turn that was cut off stays in the conversation: every tool call has a result, and one that may or may not
have taken effect says so (`doubts`). Faces (terminal, print, ACP, SDK) show the lines and pass answers on; they decide
nothing. Next: `lyra.sage.session.facts`, what is remembered of turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from lyra.agents.declaration.content import Content, content_of
from lyra.agents.declaration.hooks import AgentHooks
from lyra.agents.headless.headless import Headless, HeadlessOptions, end_reason
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.unfinished import repaired
from lyra.config import Config
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.core.message import Message
from lyra.core.secrets.redact import redact
from lyra.errors import AgentFailed, ConfigError, Conflict, Corrupt, LyraError
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.edit_preview import edit_preview
from lyra.sage.agent.equipment import AGENT, Equipment
from lyra.sage.agent.figures import context_figures, usage_figures
from lyra.sage.agent.partial import PartialTurn, summary_of_guard
from lyra.sage.agent.rewinding import Undone, checkpoint, move, restore, undo
from lyra.sage.agent.session_start import STORE_FILE, SessionStart, read_session
from lyra.sage.agent.spending import SessionSpending
from lyra.sage.agent.tasks.sub_agents import TOOL_NAMES
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.session.facts import SessionFacts, SessionTurn
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord, make_session_folder, preview, sessions_folder
from lyra.sage.session.snapshots import Checkpoint, FileChange, Snapshots
from lyra.sage.session.usage_log import UsageLog

__all__ = ["AGENT", "LiveSession", "SessionStart", "Undone", "read_session"]

_STOPPED: Final = "the user stopped this call before it was done"
_CUT_OFF: Final = "[stopped by the user]"


class LiveSession:
    """A session from `async with` to its end. One turn at a time."""

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, start: SessionStart | None = None
    ) -> None:
        self.options = options
        self.start = start or SessionStart()
        self.config = config if config is not None else Config.load(options.folder, trust=options.trust)
        self.folder = os.path.realpath(options.folder)
        root = Path(self.start.root) if self.start.root else sessions_folder()
        self.index = SessionIndex(root)
        self.root = root
        self.facts = SessionFacts()
        self.doubts: list[str] = []  # in words: what the last run was in the middle of
        self.resumed = False
        self._partial: PartialTurn | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._record: SessionRecord | None = None
        self._headless: Headless | None = None
        self.equipment: Equipment | None = None
        self.on_notice: list[Callable[[dict[str, Any]], object]] = []  # told when a task is done or asks
        self._clock = SystemClock()
        self._spending: SessionSpending | None = None
        self._mask: Callable[[str], str] = redact  # knows the providers' keys once a kernel is open

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Self:
        earlier = self._earlier()
        if earlier is None or self.start.fork:
            self._begin_record(earlier)
        else:
            self._record, self.resumed = earlier, True
        try:
            await self._open()
            if earlier is not None and self.start.fork:
                await self._copy_conversation(earlier)
            if self.headless.hooks is not None:
                await self.headless.hooks.start("resume" if self.resumed else "new", model=self.model)
        except BaseException:
            await self._close()
            if not self.resumed and not self.facts.turns:
                self.index.remove(self.id)
            self._close_files()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._headless is not None and self._headless.hooks is not None:
                await self._headless.hooks.end(end_reason(error))
            await self._close()
        finally:
            if not self.facts.turns:  # nothing was said: an empty session would only be in the way
                self.index.remove(self.id)
            self._close_files()

    async def switch(self, session: str, *, fork: bool = False, before_turn: int | None = None) -> None:
        """Close this session and open another one in its place, or a copy of one. Where that fails, this one again."""
        self._require_idle()
        self.index.get(session)  # raises where there is none
        here = SessionStart(resume=self.id, root=str(self.root)) if self.facts.turns else self.start
        there = SessionStart(resume=session, fork=fork, before_turn=before_turn, root=str(self.root))
        await self.__aexit__(None, None, None)
        try:
            await self._start_as(there)
        except LyraError:
            await self._start_as(here)
            raise

    async def _start_as(self, start: SessionStart) -> None:
        self.start, self.doubts, self.resumed = start, [], False
        self._record = self._spending = None
        self.index = SessionIndex(self.root)
        await self.__aenter__()

    def _close_files(self) -> None:
        self.index.close()
        if self._spending is not None:
            self._spending.log.close()

    def _earlier(self) -> SessionRecord | None:
        wanted = self.start.resume
        if wanted is None:
            return None
        record = self.index.get(wanted) if wanted else self.index.latest(self.folder)
        if record is None:
            raise ConfigError(
                f"there is no session of {self.folder} yet", hint="start one: sage", place=self.folder, key="--continue"
            )
        return record

    def _begin_record(self, parent: SessionRecord | None) -> None:
        now = self._clock.now()
        folder = make_session_folder(now, Entropy(), self.root)
        self._record = SessionRecord(
            id=folder.name,
            folder=self.folder,
            title=preview(self.start.title) or (f"{parent.label} (fork)" if parent is not None else ""),
            created_at=now,
            updated_at=now,
            parent=parent.id if parent is not None else "",
        )

    @property
    def place(self) -> Path:
        """The session's own folder, with its store and the copies of files."""
        return self.root / self.id

    async def _open(self) -> None:
        self.equipment = Equipment(
            self.options,
            self.config,
            self.folder,
            self.place,
            mode=lambda: self.mode,
            notify=self._notify,
            budget=self.spending.turn_budget,
        )
        # The budget is one of this run: the process, which outlives it, is spawned without one.
        options = self.equipment.options(session=AGENT, store=str(self.place / STORE_FILE), budget=None)
        self.facts = SessionFacts()
        headless = Headless(options, self.config, states=(self.facts, self.tasks.state))
        try:
            await headless.__aenter__()
        except Conflict as error:
            hint = f"go on in a copy: sage -r {self.id} --fork"
            raise Conflict(f"the session {self.id} is open in another program", hint=hint, **error.fields) from error
        except Corrupt as error:
            error.hint = f"the session cannot be read any more; sage sessions rm {self.id} removes it"
            raise
        self._headless = headless
        self._mask = runtime_of(headless.kernel).clean
        self.spending.listen(headless.kernel)
        self.equipment.prompt.begin(headless.kernel.tasks)
        self.tasks.open(self.process, headless.agent)
        if headless.unfinished is not None:
            await self._repair()
        title = {"title": preview(self.start.title)} if self.start.title else {}
        self.save(model=self.without_keys(str(headless.agent.model)), state="idle", **title)

    async def _close(self) -> None:
        if self._headless is not None:
            headless, self._headless = self._headless, None
            await headless.__aexit__(None, None, None)
        if self.equipment is not None:
            equipment, self.equipment = self.equipment, None
            equipment.close()

    async def _reopen(self, **changes: Any) -> None:
        """Open the same session with other options."""
        if self._partial is not None:
            raise Conflict("the session is in the middle of a turn", hint="interrupt it first")
        before, hooks = self.options, self.headless.hooks
        await self._close()
        self.options = msgspec.structs.replace(before, **changes)
        try:
            await self._open()
        except LyraError:
            self.options = before
            await self._open()
            raise
        finally:
            if hooks is not None and self._headless is not None and self._headless.hooks is not None:
                self._headless.hooks.take_over(hooks)

    async def _repair(self) -> None:
        """Keep what the last run had done of its turn, and tell what is in doubt."""
        unfinished = self.headless.unfinished
        assert unfinished is not None
        start = len(self.process.messages)
        self.doubts = [
            f"{call.name} {_short(call.arguments)}: it may or may not have taken effect"
            for call in unfinished.doubts
            if call.name not in TOOL_NAMES  # a sub-agent goes on, and its answer is told
        ]
        await self.tasks.worktrees.clean_up()
        await self.process.revise(start, [unfinished.question, *unfinished.messages])
        turn = self.facts.turns[-1] if self.facts.turns else None
        if turn is not None and turn.status == "running":
            self.fact("session.turn_ended", {"number": turn.number, "status": "interrupted"})

    async def _copy_conversation(self, earlier: SessionRecord) -> None:
        messages, facts = read_session(self.root / earlier.id)
        if self.start.before_turn is not None:
            messages = facts.messages_before(self.start.before_turn, messages)
        whole = repaired(messages, {}, "the session was copied before this call was done")
        await self.process.revise(0, whole)
        self.fact("session.set", {"forked_from": earlier.id})
        self.save(first_prompt=earlier.first_prompt, last_prompt=earlier.last_prompt)

    # ------------------------------------------------------------------ what it is

    @property
    def headless(self) -> Headless:
        assert self._headless is not None, "the session is not open"
        return self._headless

    @property
    def hooks(self) -> AgentHooks | None:
        """The hooks of the program, the settings files and the plugins; None where there are none."""
        return None if self.equipment is None else self.equipment.hooks

    @property
    def tasks(self) -> TaskList:
        """The sub-agents and background commands of the session."""
        assert self.equipment is not None, "the session is not open"
        return self.equipment.tasks

    def _notify(self, notice: dict[str, Any]) -> None:
        for tell in self.on_notice:
            tell(notice)

    @property
    def snapshots(self) -> Snapshots:
        assert self.equipment is not None, "the session is not open"
        return self.equipment.snapshots

    @property
    def kernel(self) -> Kernel:
        return self.headless.kernel

    @property
    def process(self) -> AgentProcess[Any]:
        process = self.headless.process
        assert process is not None
        return process

    @property
    def record(self) -> SessionRecord:
        assert self._record is not None, "the session is not open"
        return self._record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def title(self) -> str:
        return self.record.title

    @property
    def model(self) -> str:
        return str(self.headless.agent.model)

    @property
    def mode(self) -> str:
        return self.headless.setup.permissions.mode

    @property
    def turns(self) -> list[SessionTurn]:
        return self.facts.standing

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.process.messages

    @property
    def is_busy(self) -> bool:
        return self._partial is not None

    @property
    def spending(self) -> SessionSpending:
        """What the session's calls cost, and what they may cost."""
        if self._spending is None:
            log = UsageLog(self.root)
            self._spending = SessionSpending(
                log, self.config, self._clock, session=self.id, run_budget=self.options.budget
            )
        return self._spending

    # ------------------------------------------------------------------ turns

    async def opening(self) -> dict[str, Any]:
        """The `system` line of this session."""
        return {**await self.headless.opening(), "session_id": self.id}

    async def send(
        self, content: Content, *, beside: str = "", only: Sequence[str] | None = None, model: str = ""
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Put a message to the agent: what happens, one mapping a line. The last line is the `result`.

        `beside` is text from outside to work on. For this message alone `only` are the rules of all calls that are
        allowed, and `model` is asked instead of the session's."""
        usual = self.model
        if model and model != usual:
            await self.set_model(model)
        try:
            async with contextlib.aclosing(self._send(content, beside, only)) as lines:
                async for line in lines:
                    yield line
        finally:
            if model and model != usual:
                await self.set_model(usual)

    async def _send(
        self, content: Content, beside: str, only: Sequence[str] | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        if self._partial is not None:
            raise Conflict("the session is in the middle of a turn", hint="wait for its result, or interrupt it")
        budget = self.spending.turn_budget()
        start = len(self.process.messages)
        prompt = self.without_keys(_text_of(content))
        number = self.spending.turn = self.facts.last_number + 1
        partial = self._partial = PartialTurn(number, start, self.process.metrics.copy())
        await asyncio.to_thread(self.snapshots.begin_turn, number)
        self.fact("session.turn_began", {"number": number, "prompt": prompt, "start": start, "model": self.model})
        self.save(prompt=prompt, state="active")
        last: dict[str, Any] = {}
        try:
            async with contextlib.aclosing(
                self.headless.lines(self._with_suggestion(content, prompt), beside=beside, budget=budget, only=only)
            ) as lines:
                async for line in lines:
                    partial.see(line)
                    if line["type"] == "result":
                        last = line
                    else:
                        yield self._shown(line)
        finally:
            if not last:  # the reader left, or the program ends
                self.headless.stop()
                last = self.headless.result("interrupted")
            last = await self._end(partial, last)
        yield last

    def _with_suggestion(self, content: Content, prompt: str) -> Content:
        """The message, with a line about skills that fit it."""
        suggestion = self.equipment.extensions.skills.suggestion(prompt) if self.equipment is not None else ""
        if not suggestion or isinstance(content, Message):
            return content
        parts: list[Any] = list(content) if isinstance(content, (list, tuple)) else [content]
        return [*parts, f"(Notice by the program, not by the user: {suggestion})"]

    async def _end(self, partial: PartialTurn, result: dict[str, Any]) -> dict[str, Any]:
        """Write down how a turn ended; what was said and done in one that failed stays in the conversation."""
        status = str(result["status"])
        try:
            if status != "success" and self.process.alive:
                await self._keep(partial, status)
        finally:
            self._partial = None
        text = str(result["text"])
        if not text and status != "success":
            text = partial.text if status == "interrupted" else summary_of_guard(status, partial)
        spent = partial.spent(self.process.metrics)
        await asyncio.to_thread(self.snapshots.end_turn)
        files = [change.name for change in self.changes(partial.number)]
        self.fact(
            "session.turn_ended",
            {"number": partial.number, "status": status, "answer": preview(text), "files": files, **spent},
        )
        self.index.add_text(self.id, partial.number, text)
        if status == "success" and self.mode == "plan":
            self.keep(plan=text)
        state = "idle" if status == "success" else "interrupted" if status == "interrupted" else "failed"
        self.save(state=state, cost_usd=self.process.metrics.cost_usd)
        counted = partial.usage(self.process.metrics)
        return {**result, **counted, "text": text, "session_id": self.id, "turn": partial.number}

    async def _keep(self, partial: PartialTurn, status: str) -> None:
        execution = self.process.execution
        messages = list(execution.messages) if execution is not None else []
        messages = repaired(messages, partial.results, _STOPPED)
        words = partial.text
        if status == "interrupted":
            words = f"{words}\n\n{_CUT_OFF}" if words else _CUT_OFF
        if words and messages:
            messages.append(Message("assistant", words))
        await self.process.revise(partial.start, messages)

    async def interrupt(self) -> bool:
        """Stop what runs; the turn's lines end with the status `interrupted`. False where nothing runs."""
        if self._compacting is not None:
            return self._compacting.cancel()
        return self.headless.stop()

    async def answer(
        self, interrupt_id: str, decision: str = "", *, text: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Answer a question of the agent: allow, always, deny or never for a call; text for a question in words."""
        answer: dict[str, Any] = {"decision": decision, "text": text}
        if decision in ("allow", "always", "deny", "never"):
            answer["approved"] = decision in ("allow", "always")
        if arguments is not None:
            answer["data"] = {"arguments": arguments}
        await self.kernel.resolve_interrupt(interrupt_id, answer)

    def _shown(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line with the diff of the edit that a question is about."""
        if line["type"] != "interrupt" or "tool" not in line:
            return line
        diff = self.without_keys(edit_preview(line["tool"], line["arguments"], self.folder))
        return {**line, "diff": diff} if diff else line

    # ------------------------------------------------------------------ moving in the conversation

    def changes(self, turn: int | None = None) -> list[FileChange]:
        """The files that the agent has changed in a turn; without one, since the session began."""
        return self.snapshots.turn_changes(turn)

    async def undo(self, turn: int | None = None, *, force: bool = False) -> Undone:
        """Restore files and conversation to before a turn (the last one where none is named).

        Conflict where another hand has changed one of the files since, with the `diff`; `force` overwrites it.
        """
        self._require_idle()
        return await undo(self, turn, force=force)

    async def checkpoint(self, name: str) -> Checkpoint:
        """Name the present state of files and conversation."""
        self._require_idle()
        return await checkpoint(self, self.without_keys(name))

    async def restore(self, name: str, *, force: bool = False) -> Undone:
        """Go back to a checkpoint: the files as they were, and the conversation up to there."""
        self._require_idle()
        return await restore(self, self.without_keys(name), force=force)

    async def clear(self) -> None:
        """Begin a new conversation in the same session; the turns so far can still be undone."""
        self._require_idle()
        hooks = self.headless.hooks
        if hooks is not None:
            await hooks.end("clear")
        await move(self, "clear", [])
        if hooks is not None:
            await hooks.start("clear", model=self.model)

    async def compact(self, focus: str = "") -> tuple[int, int]:
        """Replace all but the last turn by a summary in what the model is sent; tokens before and after."""
        self._require_idle()
        before = self.context_tokens()
        working = self._compacting = self.kernel.tasks.start(self.process.compact(focus), name="lyra-compact")
        try:
            await asyncio.wait([working])
        finally:
            self._compacting = None
            working.cancel()
        if working.cancelled():
            raise AgentFailed("the compaction was interrupted; the conversation is as before", status="interrupted")
        working.result()
        return before, self.context_tokens()

    def context_tokens(self) -> int:
        """Tokens of the messages that the next call sends, as far as they can be known before it."""
        session = self.agent_session
        return 0 if session is None else session.ledger.sent(session.messages, session.window)

    @property
    def agent_session(self) -> Any:
        return runtime_of(self.kernel).session_to_read(self.process.pid)

    def usage(self) -> dict[str, Any]:
        """Tokens and dollars of the session, its last turn, its agents and models."""
        return usage_figures(self.spending, self.id)

    def context(self) -> dict[str, Any]:
        """Tokens of the next request by part, and the size of the model's window."""
        return context_figures(self.headless.agent, self.agent_session, self.kernel)

    def _require_idle(self) -> None:
        if self._partial is not None:
            raise Conflict("the session is in the middle of a turn", hint="interrupt it first")

    # ------------------------------------------------------------------ settings

    async def set_model(self, name: str) -> None:
        """Ask another model from the next turn on."""
        await self._reopen(model=name)

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode, at once and also in the middle of a turn."""
        self.headless.setup.permissions.set_mode(mode)
        self.options = msgspec.structs.replace(self.options, mode=mode)
        self.process.regrant(self.headless.setup.grant)

    def set_title(self, title: str) -> None:
        self.save(title=preview(self.without_keys(title)))

    # ------------------------------------------------------------------ writing down

    def keep(self, **settings: Any) -> None:
        """Remember settings of the session in its facts: `facts.settings` has them, also after it is opened again."""
        self.fact("session.set", settings)

    def without_keys(self, text: str) -> str:
        """A text that is kept or shown, with the keys of model providers masked."""
        return self._mask(text)

    def fact(self, kind: str, data: dict[str, Any]) -> None:
        """Write a fact of the session into its journal."""
        self.kernel.fact(self.facts, AGENT, kind, runtime_of(self.kernel).clean_data(data))

    def save(self, *, prompt: str | None = None, **changes: Any) -> None:
        """Write the record of the session anew, with changes."""
        now = self._clock.now()
        record = self.record
        if prompt is not None:
            record = record.with_prompt(prompt, now=now)
            self.index.add_text(record.id, self.facts.last_number, prompt)
        record = msgspec.structs.replace(record, updated_at=now, **changes)
        self._record = msgspec.structs.replace(record, title=self.without_keys(record.title))
        self.index.upsert(self._record)


def _text_of(content: Content) -> str:
    """The words of a message: images are named, not shown."""
    parts = content_of(content)
    if isinstance(parts, str):
        return parts
    return " ".join(str(part.get("text") or f"[{part['type']}]") for part in parts)


def _short(arguments: dict[str, Any]) -> str:
    return preview(" ".join(str(value) for value in arguments.values()), 80)
