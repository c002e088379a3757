"""AgentHooks: what an agent's loop asks at the moments of `lyra.core.hook_events`, and the answer it gets.

    Agent("reviewer", model=…, hooks=Hooks([…]))

The loop asks `status_for` whether anything is to run, and runs it as an effect: its HookOutcome is journaled, so that a
replay takes the same decision and runs nothing again. Helpers of the agent have its hooks too. What a hook is, and how
it is run, is the business of the object that is given; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import msgspec

HOOK_METHODS: Final = ("status_for", "run")


class HookOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What all hooks of one moment came to.

    `deny` refuses what is about to happen, `ask` has a person asked, `allow` answers a question that would be asked
    and overrides no deny. `arguments` take the place of a call's; `context` is text for the model, `tainted` where it
    counts as text from outside. `messages` are for the user, `warnings` say which hooks failed. `ends_turn` ends the
    turn after this.
    """

    decision: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    context: str = ""
    tainted: bool = False
    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ends_turn: bool = False


class AgentHooks(Protocol):
    """The hooks of an agent."""

    def status_for(self, event: str, data: Mapping[str, Any]) -> str | None:
        """The text to show while the hooks for this run, which may be empty; None where there is none for it."""
        ...

    async def run(self, event: str, data: Mapping[str, Any]) -> HookOutcome:
        """Run the hooks for a moment, with its fields. One that has to succeed and fails is a `deny`."""
        ...
