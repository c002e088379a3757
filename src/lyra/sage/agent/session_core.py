"""SessionCore: what a session consists of while it is open, its kernel, its agent, its record, its files as they were.

Opens and closes them, also in the middle with other options, and has what they know. The conversation is that of an
agent process in the session's own store, so nothing that was acknowledged is lost by `kill -9`. Runs no turn: `live`
has what callers do with a session. `session_writer` writes down what is remembered of it, `equipment` is what the agent
works with, `earlier_run` goes on with what another run left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from lyra.agents.declaration.hooks import AgentHooks
from lyra.agents.headless.headless import Headless, HeadlessOptions, end_reason
from lyra.agents.session.agent_process import AgentProcess
from lyra.config import Config
from lyra.core.message import Message
from lyra.errors import Conflict, Corrupt, LyraError
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.earlier_run import copy_conversation, explain_damage, repair
from lyra.sage.agent.equipment import AGENT, Equipment
from lyra.sage.agent.session_start import STORE_FILE, SessionStart, with_kept_mode
from lyra.sage.agent.session_writer import SessionWriter
from lyra.sage.agent.spending import SessionSpending
from lyra.sage.agent.tasks.record import TaskRecord
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.session.facts import SessionFacts, SessionTurn
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord, preview, sessions_folder
from lyra.sage.session.snapshots import Snapshots
from lyra.sage.session.usage_log import UsageLog

_MODEL_CALLS_S: Final = 0.3  # how long a session that is left waits for model calls under way


class SessionCore:
    """From `async with` to its end."""

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, start: SessionStart | None = None
    ) -> None:
        self.options = options
        self.start = start or SessionStart()
        self.config = config if config is not None else Config.load(options.folder, trust=options.trust, lenient=True)
        self.folder = os.path.realpath(options.folder)
        self.root = Path(self.start.root) if self.start.root else sessions_folder()
        self.doubts: list[str] = []  # in words: what the last run was in the middle of
        self.resumed = False
        self.equipment: Equipment | None = None
        self.on_notice: list[Callable[[TaskRecord], object]] = []  # told when a task is done or asks
        self._writer = SessionWriter(self.root, self.folder)
        self._headless: Headless | None = None
        self._spending: SessionSpending | None = None

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Self:
        wanted, writer = self.start.resume, self._writer
        earlier = None if wanted is None else writer.find(wanted)
        if earlier is None or self.start.fork:
            writer.begin(self.start.title, earlier)
        else:
            writer.go_on(earlier)
            self.resumed = True
        try:
            if earlier is not None:
                self.options = with_kept_mode(self.options, earlier)
            await self._open()
            if self.resumed and self.start.title:
                self.save(title=preview(self.without_keys(self.start.title)))
            if earlier is not None and self.start.fork:
                await copy_conversation(self, earlier, self.start.before_turn)
            if self.headless.hooks is not None:
                await self.headless.hooks.start("resume" if self.resumed else "new", model=self.model)
        except BaseException:
            await self._close()
            self._close_files(resumed=self.resumed)
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
            self._close_files()

    async def _start_as(self, start: SessionStart) -> None:
        self.start, self.doubts, self.resumed = start, [], False
        self._spending = None
        self._writer = SessionWriter(self.root, self.folder)
        await self.__aenter__()

    def _close_files(self, *, resumed: bool = False) -> None:
        self._writer.close(resumed=resumed)
        if self._spending is not None:
            self._spending.log.close()

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
        headless = Headless(options, self.config, states=(self._writer.new_facts(), self.tasks.state))
        try:
            await headless.__aenter__()
        except Conflict as error:
            hint = f"go on in a copy: sage -r {self.id} --fork"
            raise Conflict(f"the session {self.id} is open in another program", hint=hint, **error.fields) from error
        except Corrupt as error:
            explain_damage(error, self.record, self.index)
            raise
        self._headless = headless
        self._writer.write_to(headless.kernel)
        self.spending.listen(headless.kernel)
        self.equipment.prompt.begin(headless.kernel.tasks)
        self.tasks.open(self.process, headless.agent)
        if headless.unfinished is not None:
            self.doubts = await repair(self, headless.unfinished)
        self.save(model=self.without_keys(str(headless.agent.model)), state="idle", mode=self.options.mode or "")

    async def _close(self) -> None:
        if self._headless is not None:
            headless, self._headless = self._headless, None
            # A sub-agent that waits for its model asks again when the session is opened the next time.
            await headless.kernel.close(repeatable_drain_s=_MODEL_CALLS_S)
            await headless.__aexit__(None, None, None)
        if self.equipment is not None:
            equipment, self.equipment = self.equipment, None
            equipment.close()

    async def _reopen(self, **changes: Any) -> None:
        """Open the same session with other options."""
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

    def _notify(self, notice: TaskRecord) -> None:
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
        return self._writer.record

    @property
    def index(self) -> SessionIndex:
        """The records of all sessions."""
        return self._writer.index

    @property
    def facts(self) -> SessionFacts:
        """What the session remembers of its turns."""
        return self._writer.facts

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def place(self) -> Path:
        """The session's own folder, with its store and the copies of files."""
        return self.root / self.id

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
    def spending(self) -> SessionSpending:
        """What the session's calls cost, and what they may cost."""
        if self._spending is None:
            self._spending = SessionSpending(
                UsageLog(self.root), self.config, self._writer.clock, session=self.id, run_budget=self.options.budget
            )
        return self._spending

    # ------------------------------------------------------------------ writing down

    def keep(self, **settings: Any) -> None:
        """Remember settings of the session in its facts: `facts.settings` has them, also after it is opened again."""
        self.fact("session.set", settings)

    def without_keys(self, text: str) -> str:
        """A text that is kept or shown, with the keys of model providers masked."""
        return self._writer.without_keys(text)

    def fact(self, kind: str, data: dict[str, Any]) -> None:
        """Write a fact of the session into its journal."""
        self._writer.fact(kind, data)

    def save(self, *, prompt: str | None = None, **changes: Any) -> None:
        """Write the record of the session anew, with changes."""
        self._writer.save(prompt=prompt, **changes)
