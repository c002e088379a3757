"""AgentHandle: what every handle on an agent process offers, wherever the process is.

`AgentProcess` is one of the same kernel, `AgentAbroad` one on another shard of the cluster, and `ClusterAgent` what a
client of the cluster holds. Each says how a question gets there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from lyra.agents.declaration.output import Content, content_of
from lyra.agents.session.events import AnyEvent
from lyra.agents.session.replies import Pending, Stream
from lyra.core.budgets.budget import Limits
from lyra.core.hints import Out_co
from lyra.core.message import Message
from lyra.core.naming import give_name
from lyra.errors import ConfigError, DeadlineExceeded

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context


class AgentHandle(Generic[Out_co]):
    """See the module."""

    __slots__ = ()

    @overload
    def stream(
        self,
        message: Content,
        *,
        events: Literal[False] = False,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Stream[Out_co, str]: ...
    @overload
    def stream(
        self,
        message: Content,
        *,
        events: Literal[True],
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Stream[Out_co, AnyEvent]: ...
    @overload
    def stream(
        self,
        message: Content,
        *,
        events: bool,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Stream[Out_co, Any]: ...
    def stream(
        self,
        message: Content,
        *,
        events: bool = False,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Stream[Out_co, Any]:
        """Return the answer piece by piece: text, or with `events=True` everything that happens on the way."""
        content, rules = content_of(message), None if only is None else check_rules(only)

        async def start() -> Pending[Out_co]:
            return await self._begin_stream(message, content, budget, rules, waits=wait_for_person)

        return Stream(start, events=events)

    async def _begin_stream(
        self, message: Content, content: Any, budget: Limits | None, rules: tuple[str, ...] | None, *, waits: bool
    ) -> Pending[Out_co]:
        """Put the question to the agent."""
        raise NotImplementedError

    async def ask(self, ctx: Context, message: Content, *, budget: Limits | None = None) -> Out_co:
        """Return the answer in a program, whose journal has it: a replay does not ask again."""
        raise NotImplementedError

    async def history(self) -> tuple[Message, ...]:
        """Return the conversation so far."""
        raise NotImplementedError

    @give_name("lyra:AgentProcess.stop")
    async def stop(self, reason: str = "shutdown") -> None:
        """End the process in order; its work is cancelled."""
        await self.kill(reason)  # type: ignore[attr-defined]  # of the handle that it is besides
        await self.wait()  # type: ignore[attr-defined]


def check_rules(only: Sequence[str]) -> tuple[str, ...]:
    """Return the rules of a message's limit, checked."""
    from lyra.tools.permissions.rules import Rule

    if isinstance(only, str):
        raise ConfigError(f"only is a list of rules, not {only!r}", hint=f"only=[{only!r}]", key="only")
    return tuple(Rule(rule, "allow", source="only").text for rule in only)


def make_late_error(who: str, timeout_s: float, **fields: Any) -> DeadlineExceeded:
    return DeadlineExceeded(f"agent process {who} did not answer within {timeout_s:g} s", timeout_s=timeout_s, **fields)
