"""ShownSession: what the terminal needs of a session. `lyra.sage.agent.live` has the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from lyra.agents.declaration.hooks import AgentHooks
from lyra.agents.session.events import AnyLine, SystemLine
from lyra.core.message import Message
from lyra.sage.agent.tasks.record import TaskRecord
from lyra.sage.commands.session_protocol import ContextFigures, UsageFigures
from lyra.sage.session.facts import SessionFacts


class ShownSession(Protocol):
    """A session that can be talked to, one turn at a time."""

    @property
    def id(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def doubts(self) -> Sequence[str]: ...

    @property
    def messages(self) -> Sequence[Message]: ...

    @property
    def on_notice(self) -> list[Callable[[TaskRecord], object]]: ...

    @property
    def facts(self) -> SessionFacts: ...

    @property
    def hooks(self) -> AgentHooks | None: ...

    async def opening(self) -> SystemLine: ...

    def send(
        self, content: Any, *, beside: str = "", only: Sequence[str] | None = None, model: str = ""
    ) -> AsyncIterator[AnyLine]: ...

    async def interrupt(self) -> object: ...

    async def answer(
        self, interrupt_id: str, decision: str, *, text: str = "", arguments: dict[str, Any] | None = None
    ) -> None: ...

    async def set_mode(self, mode: str) -> None: ...

    def without_keys(self, text: str) -> str: ...

    def usage(self) -> UsageFigures: ...

    def context(self) -> ContextFigures: ...
