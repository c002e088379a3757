"""CommandSession: what slash commands need of a session, and the figures that it gives. `lyra.sage.agent.live` has the
real one, `lyra.sage.agent.figures` measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from lyra.sage.session.usage_log import UsageLog, UsageSum


class UsageFigures(NamedTuple):
    """What a session, its last turn, its agents and its models have used; `budget_usd` is its tightest limit."""

    total: UsageSum
    turn: UsageSum
    agents: dict[str, UsageSum]
    models: dict[str, UsageSum]
    budget_usd: float | None = None


class ContextTokens(NamedTuple):
    """Tokens of the next request by part, and in all."""

    system: int
    memory: int
    tools: int
    messages: int
    total: int


class ContextFigures(NamedTuple):
    """`window`: tokens that the model can read, None if that is not published. From `compact_at` tokens on the
    conversation is compacted. `estimated`: no provider has counted yet."""

    tokens: ContextTokens
    window: int | None
    compact_at: int | None
    estimated: bool

    @property
    def percent(self) -> int | None:
        """How full the window is; None if its size is not known."""
        return min(100, round(100 * self.tokens.total / self.window)) if self.window else None


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

    def usage(self) -> UsageFigures: ...

    def context(self) -> ContextFigures: ...

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
