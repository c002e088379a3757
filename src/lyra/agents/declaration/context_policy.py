"""ContextPolicy: how much of a conversation an agent sends to its model.

    kind      what is sent                                       cut when
    window    the last messages that fit                         more than `tokens` would be sent
    sliding   the last `turns` turns                             there are more
    compact   a summary of the rest, then the last messages      more than `tokens` would be sent

`tokens` left out is `share` of the model's context window, where that is known. After a cut, `keep` of it is left, so
that cuts are rare. `lyra.agents.turn.model_call` applies the policy.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, one_of, real, whole
from lyra.errors import ConfigError

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
            whole(self.tokens, "tokens", least=16)
        for name, default in (("share", 0.8), ("keep", 0.5)):
            given = getattr(self, name)
            self._put(**{name: default if given is None else real(given, name, above=0.0, most=1.0)})
        self._put(turns=20 if self.turns is None else whole(self.turns, "turns", least=1))
        most = 1024 if self.summary_tokens is None else whole(self.summary_tokens, "summary_tokens", least=16)
        self._put(summary_tokens=most)

    @classmethod
    def of(cls, value: Any) -> ContextPolicy:
        """Read a policy from what a user wrote: a ContextPolicy, its kind as a word, or a mapping of its settings."""
        if isinstance(value, ContextPolicy):
            return value
        return cls(kind=value) if isinstance(value, str) else cls.from_data(value)
