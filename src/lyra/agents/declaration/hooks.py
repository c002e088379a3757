"""AgentHooks: what an agent's loop asks at the moments of `lyra.config.hook_settings`, and the answer it gets.

    Agent("reviewer", model=…, hooks=Hooks([…]))

The loop asks `status_for` whether anything is to run, and runs it as an effect: its HookOutcome is journaled, so that a
replay takes the same decision and runs nothing again. Helpers of the agent have its hooks too. What a hook is, and how
it is run, is the business of the object that is given; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Protocol

import msgspec

from lyra.core.checking.check import FrozenSettings, check_integer, one_of, real
from lyra.errors import ConfigError

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
        """Return the text to show while the hooks for this run, which may be empty; None where there is none for it."""
        ...

    async def run(self, event: str, data: Mapping[str, Any]) -> HookOutcome:
        """Run the hooks for a moment, with its fields. One that has to succeed and fails is a `deny`."""
        ...


# ContextPolicy: how much of a conversation an agent sends to its model.

KINDS: Final[dict[str, str]] = {
    "window": "the last messages that fit",
    "sliding": "the last turns",
    "compact": "a summary, then the last messages",
}
_SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "window": ("tokens", "share", "keep"),
    "sliding": ("turns",),
    "compact": ("tokens", "share", "keep", "model", "summary_tokens"),
}


class ContextPolicy(FrozenSettings, frozen=True):
    """A setting that is None has the kind's own default."""

    WORD: ClassVar[str] = "a context policy"

    kind: str = "compact"
    tokens: int | None = None
    share: float | None = None  # 0.8
    keep: float | None = None  # 0.5
    turns: int | None = None  # 20
    model: str | None = None  # the agent's own
    summary_tokens: int | None = None  # 1024

    def __post_init__(self) -> None:
        one_of(self.kind, KINDS, "kind")
        for name in self.__struct_fields__[1:]:
            if getattr(self, name) is not None and name not in _SETTINGS[self.kind]:
                known = ", ".join(_SETTINGS[self.kind])
                raise ConfigError(f"a context of kind {self.kind!r} has no {name!r}; it has {known}", key=name)
        if self.tokens is not None:
            check_integer(self.tokens, "tokens", least=16)
        for name, default in (("share", 0.8), ("keep", 0.5)):
            given = getattr(self, name)
            self._put(**{name: default if given is None else real(given, name, above=0.0, most=1.0)})
        self._put(turns=20 if self.turns is None else check_integer(self.turns, "turns", least=1))
        most = 1024 if self.summary_tokens is None else check_integer(self.summary_tokens, "summary_tokens", least=16)
        self._put(summary_tokens=most)

    @classmethod
    def from_value(cls, value: Any) -> ContextPolicy:
        """Read a policy from what a user wrote: a ContextPolicy, its kind as a word, or a mapping of its settings."""
        if isinstance(value, ContextPolicy):
            return value
        return cls(kind=value) if isinstance(value, str) else cls.from_data(value)
