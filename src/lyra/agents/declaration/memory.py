"""Memory: the setting that gives an agent items that outlive its conversations.

    Agent("helper", model=…, memory=True)                                # a memory under the agent's name
    Agent("helper", model=…, memory=Memory("team", tools=True))          # shared, and the model may add to it
    process.memory.add("likes tea", kind="preference")

Items live in the kernel's store (`kernel.memories`); `Remembered` reads and changes those of one scope.
`lyra.agents.turn.memory` puts the items that fit a message into the prompt and has the tools for the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, short_text, whole
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.shared.memories import MemoryItem

__all__ = ["KINDS", "Memory", "Remembered"]

KINDS: Final[dict[str, str]] = {
    "fact": "something that is so",
    "preference": "how a user wants things done; recalled with every message",
    "lesson": "what worked, or did not",
}


class Memory(FrozenSettings, frozen=True):
    """`scope` left out is the agent's name; `tools` lets the model remember and recall by itself."""

    WORD: ClassVar[str] = "memory"

    scope: str = ""
    items: int = 8
    tokens: int = 500
    tools: bool = False

    def __post_init__(self) -> None:
        short_text(self.scope, "scope", most=NAME_LENGTH_MAX)
        whole(self.items, "items", least=0, most=1_000)
        whole(self.tokens, "tokens", least=0, most=10**6)

    @classmethod
    def of(cls, value: Any, *, agent: str) -> Memory | None:
        """Read the setting: True is a memory under the agent's name, None and False are no memory."""
        if value is None or value is False:
            return None
        memory = cls() if value is True else value if isinstance(value, Memory) else cls._read(value)
        return memory if memory.scope else cls(agent, memory.items, memory.tokens, memory.tools)

    @classmethod
    def _read(cls, value: Any) -> Memory:
        return cls(scope=value) if isinstance(value, str) else cls.from_data(value)

    def on(self, kernel: Kernel) -> Remembered:
        """The items of this scope in a kernel's store."""
        if not self.scope:
            raise ConfigError("this memory has no scope yet", hint="Memory('name'), or the agent's", key="scope")
        return Remembered(kernel, self.scope)


class Remembered:
    """The items of one scope of a kernel's memories."""

    __slots__ = ("_kernel", "scope")

    def __init__(self, kernel: Kernel, scope: str) -> None:
        self._kernel = kernel
        self.scope = scope

    def add(self, text: str, *, kind: str = "fact") -> MemoryItem:
        return self._kernel.memories.add(self.scope, text, kind=kind)

    def forget(self, item: int | MemoryItem) -> bool:
        number = item if isinstance(item, int) else item.id
        return self._kernel.memories.forget(number, scope=self.scope)

    def search(self, question: str, *, most: int = 8, kind: str | None = None) -> list[MemoryItem]:
        return self._kernel.memories.search(self.scope, question, most=most, kind=kind)

    def items(self, *, kind: str | None = None) -> list[MemoryItem]:
        return self._kernel.memories.items(self.scope, kind=kind)

    def __len__(self) -> int:
        return len(self.items())
