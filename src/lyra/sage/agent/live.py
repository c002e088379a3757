"""LiveSession: one session that is open: its kernel, its agent, its turns, its files as they were.

    async with LiveSession(HeadlessOptions(model=…, attended=True)) as session:
        async for line in session.send("Fix the failing test"):
            …

The conversation is that of an agent process in the session's own store, so nothing that was acknowledged is lost by
`kill -9`. A turn that was cut off stays in the conversation: every tool call has a result, and one that may or may not
have taken effect says so. Faces (terminal, print, ACP, SDK) show the lines and pass answers on; they decide
nothing.

This module has what callers do with a session, undo, checkpoints and compaction among it. `session_core` opens and
closes it, `turn_runner` runs its turns. Next: `lyra.sage.session.record`, what is remembered of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from lyra.agents.declaration.output import Content, Image
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.session.events import AgentEvent, AnyLine, ResultLine, Retrying, SystemLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.message import Message
from lyra.errors import AgentFailed, ConfigError, Conflict, LyraError
from lyra.sage.agent.equipment import AGENT
from lyra.sage.agent.figures import ContextFigures, UsageFigures, context_figures, usage_figures
from lyra.sage.agent.session_core import ADDED, SessionCore, SessionStart, read_session, resolve_folder
from lyra.sage.agent.tasks.state import answer_data
from lyra.sage.agent.turn_runner import TurnRunner
from lyra.sage.session.record import preview
from lyra.sage.session.snapshots import Checkpoint, FileChange, Restored

__all__ = ["AGENT", "LiveSession", "SessionStart", "Undone", "read_session"]


class LiveSession(SessionCore):
    """A session from `async with` to its end. One turn at a time."""

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, start: SessionStart | None = None
    ) -> None:
        super().__init__(options, config, start=start)
        self._turns = TurnRunner(self)
        self._compaction = SessionCompaction(self)

    # ------------------------------------------------------------------ turns

    @property
    def is_busy(self) -> bool:
        return self._turns.partial is not None

    def build_interrupted_result(self) -> ResultLine:
        """Return the `result` line for a reader that left in the middle of a turn: what the turn had come to by
        then."""
        return self._turns.cut_off or {**self.headless.result("interrupted"), "session_id": self.id}

    async def opening(self) -> SystemLine:
        """Return the `system` line of this session."""
        return {**await self.headless.opening(), "session_id": self.id}

    async def send(
        self,
        content: Content,
        *,
        beside: str = "",
        own: str = "",
        images: Sequence[Image] = (),
        only: Sequence[str] | None = None,
        model: str = "",
    ) -> AsyncGenerator[AnyLine, None]:
        """Put a message to the agent: what happens, one mapping a line. The last line is the `result`.

        `beside` is text from outside to work on, `own` text of the user's own project; `images` go with it. For this
        message alone `only` are the rules of all calls that are allowed, and `model` is asked instead of the
        session's."""
        if images:
            content = [*(content if isinstance(content, (list, tuple)) else [content]), *images]
        usual = self.model
        if model and model != usual:
            await self.set_model(model)
        try:
            async with contextlib.aclosing(self._turns.run(content, beside=beside, own=own, only=only)) as lines:
                async for line in lines:
                    yield line
        finally:
            if model and model != usual:
                await self.set_model(usual)

    def steer(self, text: str, *, beside: str = "", own: str = "") -> str:
        """Have the model read a message in the middle of the turn, before it is asked next; gives its key.

        `steering.listeners` are told once it has got it. One that comes too late for that is not sent: the caller puts
        it as the next message. `beside` and `own` are texts that belong to it, as for `send`. Conflict where no turn
        runs."""
        if not self.is_busy:
            raise Conflict("no turn is under way", hint="send the message")
        text = self.without_keys(text)
        if beside or own:
            self.kernel.taint.mark(self.process.pid, "text beside the task", own=not beside)
            text = self.without_keys("\n\n".join(filter(None, (text, own, beside))))
        return self.steering.add(text)

    async def interrupt(self) -> bool:
        """Stop what runs; the turn's lines end with the status `interrupted`. False where nothing runs."""
        return self._compaction.cancel() if self._compaction.is_running else self.headless.stop()

    async def answer(
        self, interrupt_id: str, decision: str = "", *, text: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Answer a question of the agent: allow, always, deny or never for a call; text for a question in words."""
        await self.kernel.resolve_interrupt(interrupt_id, answer_data(decision, text, arguments))

    # ------------------------------------------------------------------ moving in the conversation

    def changes(self, turn: int | None = None) -> list[FileChange]:
        """Return the files that the agent has changed in a turn; without one, since the session began."""
        return self.snapshots.turn_changes(turn)

    async def undo(self, turn: int | None = None, *, force: bool = False) -> Undone:
        """Restore files and conversation to before a turn (the last one where none is named).

        Conflict where another hand has changed one of the files since, with the `diff`; `force` overwrites it.
        """
        self._turns.require_idle()
        return await undo(self, turn, force=force)

    async def redo(self, *, force: bool = False) -> Undone:
        """Take the last undo back. ConfigError where there was none since the last turn."""
        self._turns.require_idle()
        return await redo(self, force=force)

    async def checkpoint(self, name: str) -> Checkpoint:
        """Name the present state of files and conversation."""
        self._turns.require_idle()
        return await checkpoint(self, self.without_keys(name))

    async def restore(self, name: str, *, force: bool = False) -> Undone:
        """Go back to a checkpoint: the files as they were, and the conversation up to there."""
        self._turns.require_idle()
        return await restore(self, self.without_keys(name), force=force)

    async def clear(self) -> None:
        """Begin a new conversation in the same session; the turns so far can still be undone."""
        self._turns.require_idle()
        hooks = self.headless.hooks
        if hooks is not None:
            await hooks.end("clear")
        await move(self, "clear", [])
        if hooks is not None:
            await hooks.start("clear", model=self.model)

    async def compact(self, focus: str = "") -> tuple[int, int]:
        """Replace all but the last turn by a summary in what the model is sent; tokens before and after."""
        self._turns.require_idle()
        return await self._compaction.run(focus)

    def context_tokens(self) -> int:
        """Tokens of the messages that the next call sends, as far as they can be known before it."""
        session = self.agent_session
        return 0 if session is None else session.ledger.estimate_next(session.messages, session.window)

    @property
    def agent_session(self) -> Any:
        return runtime_of(self.kernel).session_to_read(self.process.pid)

    def usage(self) -> UsageFigures:
        """Tokens and dollars of the session, its last turn, its agents and models."""
        return usage_figures(self.spending, self.id)

    def context(self) -> ContextFigures:
        """Tokens of the next request by part, and the size of the model's window."""
        return context_figures(self.headless.agent, self.agent_session, self.kernel)

    # ------------------------------------------------------------------ changing it

    async def switch(self, session: str, *, fork: bool = False, before_turn: int | None = None) -> None:
        """Close this session and open another one in its place, or a copy of one. Where that fails, this one again."""
        self._turns.require_idle()
        model = self.start.model or self.index.get(session).model  # raises where there is none
        here = SessionStart(resume=self.id, root=str(self.root)) if self.facts.turns else self.start
        there = SessionStart(resume=session, fork=fork, before_turn=before_turn, root=str(self.root))
        options = self.options
        # What was chosen in this session (mode, effort, folders) goes with its copy, and with no other session.
        wanted = options if fork else msgspec.structs.replace(self._given, model=model or self._given.model)
        await self.__aexit__(None, None, None)
        try:
            await self._start_as(there, wanted)
        except LyraError:
            await self._start_as(here, options)
            raise

    async def set_model(self, name: str) -> None:
        """Ask another model from the next turn on."""
        self._turns.require_idle()
        await self._reopen(model=name)

    async def add_folder(self, path: str) -> str:
        """Work in a further folder from now on, also after the session is opened again; gives its path."""
        self._turns.require_idle()
        folder = resolve_folder(self.folder, path)
        also = tuple(dict.fromkeys((*self.options.also, folder)))
        await self._reopen(also=also)
        self.keep(**{ADDED: [*also]})
        return folder

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode, at once and also in the middle of a turn."""
        self.headless.setup.permissions.set_mode(mode)
        self.options = msgspec.structs.replace(self.options, mode=mode)
        self.process.regrant(self.headless.setup.grant)
        self.save(mode=mode)

    def set_title(self, title: str) -> None:
        self.save(title=preview(self.without_keys(title)))


# ---------------------------------------------------------------- compaction


class SessionCompaction:
    """Replaces all but the last turn by a summary in what the model is sent; can be interrupted. Of one session, one at
    a time."""

    __slots__ = ("_session", "_working")

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._working: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._working is not None

    def cancel(self) -> bool:
        """Stop the one that runs; False where none does."""
        return self._working is not None and self._working.cancel()

    async def run(self, focus: str) -> tuple[int, int]:
        """Tokens of the messages before and after."""
        session = self._session
        before = session.context_tokens()
        working = session.kernel.tasks.start(session.process.compact(focus, on_event=self._tell), name="lyra-compact")
        self._working = working
        try:
            await asyncio.wait([working])
        finally:
            self._working = None
            working.cancel()
        if working.cancelled():
            raise AgentFailed("the compaction was interrupted; the conversation is as before", status="interrupted")
        working.result()
        return before, session.context_tokens()

    def _tell(self, event: AgentEvent) -> None:
        if isinstance(event, Retrying):
            for tell in self._session.on_wait:
                tell(event)


# ---------------------------------------------------------------- rewinding

_CHECKPOINTS = "checkpoints"  # the setting: name → the position in the conversation
_REDO = "redo"  # the setting: the checkpoint that each undo left, and the last turn then


class Undone(NamedTuple):
    """The turns that were taken back, the files that were restored, and sentences about those that could not be."""

    turns: list[int]
    files: list[str]
    problems: list[str]


async def undo(session: LiveSession, turn: int | None, *, force: bool) -> Undone:
    facts = session.facts
    if not facts.standing:
        raise ConfigError("there is no turn to undo", key="turn")
    number = facts.standing[-1].number if turn is None else facts.turn(turn).number
    undone = [done.number for done in facts.standing if done.number >= number]
    if not undone:
        raise ConfigError(f"turn {number} is undone already", hint="/restore brings it back", key="turn")
    shown, here = _names_of_files(session), facts.position(len(session.messages))
    before = facts.messages_before(undone[0], list(session.messages))
    restored = await asyncio.to_thread(session.snapshots.restore, number, force=force)
    _mark(session, restored.redo, here)
    session.keep(**{_REDO: [*_redo_names(session), (restored.redo, facts.last_number)]})
    told = await session.equipment.git_acts.move(undone) if session.equipment is not None else []
    await move(session, "undo", before, undone=undone)
    problems = [*told, *_problems(session, restored, undone)]
    return Undone(undone, [path for path in restored.paths if path in shown], problems)


def _redo_names(session: LiveSession) -> list[Any]:
    """Return the checkpoints of undos that can be taken back: those since the last turn began, the newest last."""
    return [kept for kept in session.facts.settings.get(_REDO, []) if kept[1] == session.facts.last_number]


async def redo(session: LiveSession, *, force: bool) -> Undone:
    names = _redo_names(session)
    if not names:
        raise ConfigError("there is no undo to take back", hint="/restore goes to a checkpoint", key="turn")
    redone = await restore(session, names[-1][0], force=force)
    session.keep(**{_REDO: names[:-1]})
    return redone


async def checkpoint(session: LiveSession, name: str) -> Checkpoint:
    marked = await asyncio.to_thread(session.snapshots.checkpoint, name)
    _mark(session, name, session.facts.position(len(session.messages)))
    return marked


def _mark(session: LiveSession, name: str, position: dict[str, Any]) -> None:
    session.keep(**{_CHECKPOINTS: {**session.facts.settings.get(_CHECKPOINTS, {}), name: position}})


async def restore(session: LiveSession, name: str, *, force: bool) -> Undone:
    """Go to a checkpoint, forwards or back: an undo leaves one behind, so that it can be undone."""
    facts, shown = session.facts, _names_of_files(session)
    here = facts.position(len(session.messages))
    restored = await asyncio.to_thread(session.snapshots.restore_checkpoint, name, force=force)
    _mark(session, restored.redo, here)
    target = facts.settings.get(_CHECKPOINTS, {}).get(name)
    undone: list[int] = []
    told: list[str] = []
    if target is not None:
        standing, wanted = set(here["turns"]), set(target["turns"])
        undone = sorted(standing - wanted)
        messages = facts.messages_at(target, list(session.messages))
        if session.equipment is not None:
            told = await session.equipment.git_acts.move(undone, wanted - standing)
        await move(session, "restore", messages, undone=undone, redone=sorted(wanted - standing))
    problems = [*told, *_problems(session, restored, undone)]
    return Undone(undone, [path for path in restored.paths if path in shown], problems)


def _names_of_files(session: LiveSession) -> set[str]:
    """Return the paths of files that the agent has changed; folders alone, such as those of a sandbox, are not
    shown."""
    return {change.path for change in session.changes() if change.is_of_a_file}


def _problems(session: LiveSession, restored: Restored, undone: list[int]) -> list[str]:
    """Sentences about what was not brought back. What a command in the background writes is not known to be the
    agent's, so it is not undone."""
    told = [*restored.problems, *session.snapshots.notes()]
    began = min((session.facts.turn(number).began_at for number in undone), default=None)
    if began is None:
        return told
    commands = [task for task in session.tasks.list() if task.kind == "command" and (task.began_at or 0.0) >= began]
    return [*told, *(f"what the background command {task.id} has written is not undone" for task in commands)]


async def move(
    session: LiveSession,
    reason: str,
    messages: list[Message],
    *,
    undone: list[int] | None = None,
    redone: list[int] | None = None,
) -> None:
    """Continue with another conversation; what it does not have of the old one is kept in the facts."""
    now = list(session.messages)
    common = min(len(now), len(messages))
    keep = next((index for index in range(common) if now[index] != messages[index]), common)
    data = {
        "reason": reason,
        "turn": session.facts.last_number,
        "keep": keep,
        "dropped": [message.to_data() for message in now[keep:]],
        "undone": undone or [],
        "redone": redone or [],
    }
    session.fact("session.moved", data)  # in one batch with the order, which is sent before anything is awaited
    await session.process.revise(keep, messages[keep:])
    session.save()
