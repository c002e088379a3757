"""CommandSession: what slash commands need of a session. `lyra.sage.agent.live` has the real one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from lyra.agents.headless.headless import Headless, HeadlessOptions
from lyra.agents.session.agent_process import AgentProcess
from lyra.config import Config
from lyra.core.budgets.money import Money
from lyra.core.message import Message
from lyra.kernel.kernel import Kernel
from lyra.sage.extensions.extensions import Extensions
from lyra.sage.session.facts import SessionFacts, SessionTurn
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord
from lyra.sage.session.snapshots import Checkpoint, FileChange, Snapshots
from lyra.sage.session.usage_log import UsageLog

__all__ = ["CommandSession", "EquipmentView", "SpendingView", "UndoneTurns"]


class UndoneTurns(Protocol):
    """The turns that were taken back, the files that were restored, and sentences about those that could not be."""

    @property
    def turns(self) -> Sequence[int]: ...

    @property
    def files(self) -> Sequence[str]: ...

    @property
    def problems(self) -> Sequence[str]: ...


class EquipmentView(Protocol):
    """What the session has beside the built-in tools: here its extensions, whose files have slash commands."""

    @property
    def extensions(self) -> Extensions: ...


class SpendingView(Protocol):
    """What sessions have cost, and the limits that are set: what was spent, and what may be."""

    @property
    def log(self) -> UsageLog: ...

    @property
    def problem(self) -> str: ...

    def limits(self) -> dict[str, tuple[Money, Money]]: ...


class CommandSession(Protocol):
    """A session that is open and in no turn."""

    options: HeadlessOptions

    @property
    def id(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def root(self) -> Path: ...

    @property
    def record(self) -> SessionRecord: ...

    @property
    def turns(self) -> Sequence[SessionTurn]: ...

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def facts(self) -> SessionFacts: ...

    @property
    def index(self) -> SessionIndex: ...

    @property
    def config(self) -> Config: ...

    @property
    def headless(self) -> Headless: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def process(self) -> AgentProcess[Any]: ...

    @property
    def snapshots(self) -> Snapshots: ...

    @property
    def equipment(self) -> EquipmentView | None: ...

    @property
    def spending(self) -> SpendingView: ...

    def usage(self) -> dict[str, Any]: ...

    def context(self) -> dict[str, Any]: ...

    def keep(self, **settings: Any) -> None: ...

    def set_title(self, title: str) -> None: ...

    def without_keys(self, text: str) -> str: ...

    async def set_model(self, name: str) -> None: ...

    async def set_mode(self, mode: str) -> None: ...

    async def clear(self) -> None: ...

    async def compact(self, focus: str = "") -> tuple[int, int]: ...

    async def undo(self, turn: int | None = None, *, force: bool = False) -> UndoneTurns: ...

    async def checkpoint(self, name: str) -> Checkpoint: ...

    async def restore(self, name: str, *, force: bool = False) -> UndoneTurns: ...

    def changes(self, turn: int | None = None) -> Sequence[FileChange]: ...
