"""SessionCore: what a session consists of while it is open, its kernel, its agent, its record, its files as they were.

Opens and closes them, also in the middle with other options, and has what they know. The conversation is that of an
agent process in the session's own store, so nothing that was acknowledged is lost by `kill -9`. Runs no turn: `live`
has what callers do with a session. SessionWriter writes down what is remembered of it, `equipment` is what the agent
works with; `repair` and `copy_conversation` continue with what another run left.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from lyra.agents.declaration.hooks import AgentHooks
from lyra.agents.headless.headless import Headless, end_reason
from lyra.agents.headless.options import EFFORTS, HeadlessOptions
from lyra.agents.headless.setup import thinking_tokens
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.events import Retrying
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.unfinished import UnfinishedTurn, read_agent, repair_messages
from lyra.config import Config
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.core.message import Message
from lyra.core.providers import can_think
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError, Conflict, Corrupt, LyraError, Tampered
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.equipment import AGENT, Equipment
from lyra.sage.agent.figures import SessionSpending
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.agent.tasks.sub_agents import TOOL_NAMES
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.sage.agent.turn_runner import Steering
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import (
    SessionFacts,
    SessionRecord,
    SessionTurn,
    make_session_folder,
    preview,
    sessions_folder,
)
from lyra.sage.session.snapshots import Snapshots
from lyra.sage.session.usage_log import UsageLog
from lyra.store import open_store
from lyra.tools.permissions.decision import MODES

_EFFORT: Final = "effort"  # the setting of a session
_MODEL_CALLS_S: Final = 0.3  # how long a session that is left waits for model calls under way


class SessionCore:
    """From `async with` to its end."""

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, start: SessionStart | None = None
    ) -> None:
        self.options = self._given = options
        self.start = start or SessionStart()
        self.config = config if config is not None else Config.load(options.folder, trust=options.trust, lenient=True)
        self.folder = os.path.realpath(options.folder)
        self.root = Path(self.start.root) if self.start.root else sessions_folder()
        self.doubts: list[str] = []  # in words: what the last run was in the middle of
        self.resumed = False
        self.equipment: Equipment | None = None
        self.on_notice: list[Callable[[TaskRecord], object]] = []  # told when a task is done or asks
        self.on_wait: list[Callable[[Retrying], object]] = []  # told of waits for the provider outside of turns
        self.steering = Steering()
        self.init_turn = 0  # the turn of `/init`, whose AGENTS.md a person has asked for
        self._writer = SessionWriter(self.root, self.folder)
        self._headless: Headless | None = None
        self._spending: SessionSpending | None = None

    # ------------------------------------------------------------------ opening and closing

    async def __aenter__(self) -> Self:
        wanted, writer = self.start.resume, self._writer
        try:
            earlier = None if wanted is None else writer.find(wanted)
            if earlier is None or self.start.fork:
                writer.begin(self.start.title, earlier)
            else:
                writer.go_on(earlier)
                self.resumed = True
            if earlier is not None:
                self.options = with_kept_mode(self.options, earlier)
            await self._open()
            also = with_added_folders(self.options.also, self.facts)
            if also != self.options.also:
                await self._reopen(also=also)
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

    async def _start_as(self, start: SessionStart, options: HeadlessOptions) -> None:
        self.start, self.doubts, self.resumed, self.options = start, [], False, options
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
        self.set_effort(self.effort, keeps=False)
        self.tasks.open(self.process, headless.agent)
        notices = runtime_of(headless.kernel).notices
        self.steering.put_before(notices.get(AGENT))
        notices[AGENT] = self.steering
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
        """Return what the session remembers of its turns."""
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
    def effort(self) -> str:
        """Return how much the model thinks: what this run was asked for, else what was chosen in the session before,
        else the setting; empty: as its vendor has it."""
        return self.options.effort or str(self.facts.settings.get(_EFFORT) or self.config.sage.effort or "")

    def set_effort(self, effort: str, *, keeps: bool = True) -> None:
        """Have the model think so much from its next answer on."""
        if effort not in ("", *EFFORTS):
            raise ConfigError(f"an effort is one of {', '.join(EFFORTS)}", key="effort")
        if keeps:
            self.options = msgspec.structs.replace(self.options, effort=effort)
            self.keep(**{_EFFORT: effort})
        self.headless.agent.thinking_tokens = thinking_tokens(effort, self.model)

    @property
    def effort_note(self) -> str:
        """Return why the model does not think although it was asked to; empty where it does."""
        if self.effort in ("", "none") or can_think(self.model) is not False:
            return ""
        return f"{self.model} cannot think: it is asked without effort"

    @property
    def turns(self) -> list[SessionTurn]:
        return self.facts.standing

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.process.messages

    @property
    def spending(self) -> SessionSpending:
        """Return what the session's calls cost, and what they may cost."""
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
        """Return a text that is kept or shown, with the keys of model providers masked."""
        return self._writer.without_keys(text)

    def fact(self, kind: str, data: dict[str, Any]) -> None:
        """Write a fact of the session into its journal."""
        self._writer.fact(kind, data)

    def save(self, *, prompt: str | None = None, **changes: Any) -> None:
        """Write the record of the session anew, with changes."""
        self._writer.save(prompt=prompt, **changes)


class SessionWriter:
    """What an open session writes down, its record in the index of sessions and its facts in its journal. Of one
    session in `root`, the folder of all sessions; `folder` is where its agent works."""

    def __init__(self, root: Path, folder: str) -> None:
        self.root = root
        self.folder = folder
        self.clock = SystemClock()
        self.index = SessionIndex(root)
        self.facts = SessionFacts()
        self._record: SessionRecord | None = None
        self._kernel: Kernel | None = None
        self._mask: Callable[[str], str] = redact  # knows the providers' keys once a kernel is open

    # ------------------------------------------------------------------ which session

    @property
    def record(self) -> SessionRecord:
        assert self._record is not None, "the session is not open"
        return self._record

    def find(self, wanted: str) -> SessionRecord:
        """Return the record of an earlier session, by its id or the beginning of it; "" is the newest one of the
        folder."""
        record = self.index.get(wanted) if wanted else self.index.latest(self.folder)
        if record is None:
            raise ConfigError(
                f"there is no session of {self.folder} yet", hint="start one: sage", place=self.folder, key="--continue"
            )
        return record

    def go_on(self, record: SessionRecord) -> None:
        self._record = record

    def begin(self, title: str, parent: SessionRecord | None) -> None:
        """Make a new session, with its own folder."""
        now = self.clock.now()
        folder = make_session_folder(now, Entropy(), self.root)
        self._record = SessionRecord(
            id=folder.name,
            folder=self.folder,
            title=preview(title) or (f"{parent.label} (fork)" if parent is not None else ""),
            created_at=now,
            updated_at=now,
            parent=parent.id if parent is not None else "",
        )

    # ------------------------------------------------------------------ writing

    def new_facts(self) -> SessionFacts:
        """Empty facts, which a kernel that is opened with them fills from its journal."""
        self.facts = SessionFacts()
        return self.facts

    def write_to(self, kernel: Kernel) -> None:
        """Write facts into the journal of this kernel from now on."""
        self._kernel, self._mask = kernel, runtime_of(kernel).clean
        runtime_of(kernel).models.sends_before_pricing = True

    def without_keys(self, text: str) -> str:
        """Return a text that is kept or shown, with the keys of model providers masked."""
        return self._mask(text)

    def fact(self, kind: str, data: dict[str, Any]) -> None:
        """Write a fact of the session into its journal."""
        kernel = self._kernel
        assert kernel is not None, "the session is not open"
        kernel.fact(self.facts, AGENT, kind, runtime_of(kernel).clean_data(data))

    def save(self, *, prompt: str | None = None, **changes: Any) -> None:
        """Write the record of the session anew, with changes."""
        now = self.clock.now()
        record = self.record
        if prompt is not None:
            record = record.with_prompt(prompt, now=now)
            self.index.add_text(record.id, self.facts.last_number, prompt)
        record = msgspec.structs.replace(record, updated_at=now, **changes)
        self._record = msgspec.structs.replace(record, title=self.without_keys(record.title))
        self.index.upsert(self._record)

    def close(self, *, resumed: bool = False) -> None:
        """Close the index. A session without a turn would only be in the way and is removed, unless it was `resumed`
        and could not be opened."""
        try:
            if self._record is not None and not resumed and not self.facts.turns:
                self.index.remove(self.record.id)
        finally:
            self.index.close()


async def repair(session: SessionCore, unfinished: UnfinishedTurn) -> list[str]:
    """Keep what the last run had done of its turn; sentences about what is in doubt."""
    start = len(session.messages)
    doubts = [
        f"{call.name} {preview(' '.join(map(str, call.arguments.values())), 80)}: it may or may not have taken effect"
        for call in unfinished.doubts
        if call.name not in TOOL_NAMES  # a sub-agent continues, and its answer is told
    ]
    await session.tasks.worktrees.clean_up()
    await session.process.revise(start, [unfinished.question, *unfinished.messages])
    turn = session.facts.turns[-1] if session.facts.turns else None
    if turn is not None and turn.status == "running":
        session.fact("session.turn_ended", {"number": turn.number, "status": "interrupted"})
    return doubts


async def copy_conversation(session: SessionCore, earlier: SessionRecord, before_turn: int | None) -> None:
    """Begin with the conversation of another session, or the part of it before a turn."""
    try:
        messages, facts = read_session(session.root / earlier.id)
    except Corrupt as error:
        explain_damage(error, earlier, session.index)
        raise
    if before_turn is not None:
        messages = facts.messages_before(before_turn, messages)
    whole = repair_messages(messages, {}, "the session was copied before this call was done")
    await session.process.revise(0, whole)
    session.fact("session.set", {"forked_from": earlier.id})
    session.save(first_prompt=earlier.first_prompt, last_prompt=earlier.last_prompt)


def explain_damage(error: Corrupt, record: SessionRecord, index: SessionIndex) -> None:
    """Let the error of a store that cannot be read name its session, and ways to continue: without it, or with
    another."""
    error.message = f"the session {record.id} ({record.label}) cannot be read any more: {error.message}"
    error.args = (error.message, *error.args[1:])
    others = (other.id for other in index.list(record.folder, limit=3) if other.id != record.id and other.turns)
    other = next(others, "OTHER")
    adopted = f"{error.hint}; or " if isinstance(error, Tampered) and error.hint else ""
    error.hint = f"{adopted}remove it: sage sessions rm {record.id}; or go on with another one: sage -r {other}"


STORE_FILE: Final = "session.db"
ADDED: Final = "add_dirs"  # the setting of a session with the folders that were added to it
NOT_KEPT: Final = "bypass"  # a mode that has to be asked for in each run


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """How a session begins: anew, as the newest one of the folder, as one with this id, or as a copy of it."""

    resume: str | None = None  # an id or the beginning of one; "" is the newest session of the folder
    fork: bool = False
    before_turn: int | None = None  # of a fork: the conversation before this turn
    title: str = ""
    model: str = ""  # of the session that is opened next in place of this one; empty: that session's own
    root: str = ""  # the folder of all sessions; empty: in the user's data folder


def with_kept_mode(options: HeadlessOptions, record: SessionRecord) -> HeadlessOptions:
    """Return the options with the permission mode that was chosen for the session, unless they name one.

    `bypass` is not kept: calls without a question are allowed only where this run was told so."""
    if options.mode is not None or record.mode in ("", NOT_KEPT) or record.mode not in MODES:
        return options
    return msgspec.structs.replace(options, mode=record.mode)


def resolve_folder(base: str, path: str) -> str:
    """Return the real path of a folder that a person names."""
    return os.path.realpath(os.path.join(base, os.path.expanduser(path)))


def with_added_folders(also: tuple[str, ...], facts: SessionFacts) -> tuple[str, ...]:
    """Return the further folders of a run with those that were added to the session before and are still there."""
    added = [path for path in facts.settings.get(ADDED, ()) if os.path.isdir(path)]
    return tuple(dict.fromkeys((*also, *(path for path in added if path not in map(os.path.realpath, also)))))


def read_session(folder: Path) -> tuple[list[Message], SessionFacts]:
    """Return the conversation and the facts of a session, read from its store without running it."""
    facts = SessionFacts()
    store = open_store(str(folder / STORE_FILE))
    try:
        stored = read_agent(store, AGENT, [facts])
    finally:
        store.close()
    messages = list(stored.messages)
    if stored.unfinished is not None:
        messages += [stored.unfinished.question, *stored.unfinished.messages]
    return messages, facts
