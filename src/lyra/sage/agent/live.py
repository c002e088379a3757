"""LiveSession: one session that is open: its kernel, its agent, its turns, its files as they were.

    async with LiveSession(HeadlessOptions(model=…, attended=True)) as session:
        async for line in session.send("Fix the failing test"):
            …

The conversation is that of an agent process in the session's own store, so nothing that was acknowledged is lost by
`kill -9`. A turn that was cut off stays in the conversation: every tool call has a result, and one that may or may not
have taken effect says so (`doubts`). Faces (terminal, print, ACP, SDK) show the lines and pass answers on; they decide
nothing.

This module has what callers do with a session. `session_core` opens and closes it, `turn_runner` runs its turns,
`rewinding` goes back. Next: `lyra.sage.session.facts`, what is remembered of turns.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from lyra.agents.declaration.content import Content
from lyra.agents.headless.headless import HeadlessOptions
from lyra.agents.session.events import AnyLine, ResultLine, SystemLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.errors import LyraError
from lyra.sage.agent.compaction import SessionCompaction
from lyra.sage.agent.equipment import AGENT
from lyra.sage.agent.figures import context_figures, usage_figures
from lyra.sage.agent.rewinding import Undone, checkpoint, move, restore, undo
from lyra.sage.agent.session_core import SessionCore
from lyra.sage.agent.session_start import SessionStart, read_session
from lyra.sage.agent.turn_runner import TurnRunner
from lyra.sage.commands.session_protocol import ContextFigures, UsageFigures
from lyra.sage.session.record import preview
from lyra.sage.session.snapshots import Checkpoint, FileChange

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

    def interrupted_result(self) -> ResultLine:
        """The `result` line for a reader that left in the middle of a turn: what the turn had come to by then."""
        return self._turns.cut_off or {**self.headless.result("interrupted"), "session_id": self.id}

    async def opening(self) -> SystemLine:
        """The `system` line of this session."""
        return {**await self.headless.opening(), "session_id": self.id}

    async def send(
        self, content: Content, *, beside: str = "", only: Sequence[str] | None = None, model: str = ""
    ) -> AsyncGenerator[AnyLine, None]:
        """Put a message to the agent: what happens, one mapping a line. The last line is the `result`.

        `beside` is text from outside to work on. For this message alone `only` are the rules of all calls that are
        allowed, and `model` is asked instead of the session's."""
        usual = self.model
        if model and model != usual:
            await self.set_model(model)
        try:
            async with contextlib.aclosing(self._turns.run(content, beside=beside, only=only)) as lines:
                async for line in lines:
                    yield line
        finally:
            if model and model != usual:
                await self.set_model(usual)

    async def interrupt(self) -> bool:
        """Stop what runs; the turn's lines end with the status `interrupted`. False where nothing runs."""
        return self._compaction.cancel() if self._compaction.is_running else self.headless.stop()

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

    # ------------------------------------------------------------------ moving in the conversation

    def changes(self, turn: int | None = None) -> list[FileChange]:
        """The files that the agent has changed in a turn; without one, since the session began."""
        return self.snapshots.turn_changes(turn)

    async def undo(self, turn: int | None = None, *, force: bool = False) -> Undone:
        """Restore files and conversation to before a turn (the last one where none is named).

        Conflict where another hand has changed one of the files since, with the `diff`; `force` overwrites it.
        """
        self._turns.require_idle()
        return await undo(self, turn, force=force)

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
        return 0 if session is None else session.ledger.sent(session.messages, session.window)

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
        self.index.get(session)  # raises where there is none
        here = SessionStart(resume=self.id, root=str(self.root)) if self.facts.turns else self.start
        there = SessionStart(resume=session, fork=fork, before_turn=before_turn, root=str(self.root))
        await self.__aexit__(None, None, None)
        try:
            await self._start_as(there)
        except LyraError:
            await self._start_as(here)
            raise

    async def set_model(self, name: str) -> None:
        """Ask another model from the next turn on."""
        self._turns.require_idle()
        await self._reopen(model=name)

    async def set_mode(self, mode: str) -> None:
        """Change the permission mode, at once and also in the middle of a turn."""
        self.headless.setup.permissions.set_mode(mode)
        self.options = msgspec.structs.replace(self.options, mode=mode)
        self.process.regrant(self.headless.setup.grant)
        self.save(mode=mode)

    def set_title(self, title: str) -> None:
        self.save(title=preview(self.without_keys(title)))
