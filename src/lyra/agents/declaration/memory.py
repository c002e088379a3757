"""Memory: the setting that gives an agent items that outlive its conversations.

    Agent("helper", model=…, memory=True)                                # a memory under the agent's name
    Agent("helper", model=…, memory=Memory("team", tools=True))          # shared, and the model may add to it
    process.memory.add("likes tea", kind="preference")

Items live in the kernel's store (`kernel.memories`), or in a `MemoryHome` of their own, which outlives kernels;
`Remembered` reads and changes those of one scope.
`lyra.agents.turn.memory` puts the items that fit a message into the prompt and has the tools for the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from lyra.core.checking.check import FrozenSettings, check_integer, short_text
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.shared.memories import MemoryItem


KINDS: Final[dict[str, str]] = {
    "fact": "something that is so",
    "preference": "how a user wants things done; recalled with every message",
    "lesson": "what worked, or did not",
}


_HOME_METHODS: Final = ("add", "forget", "items", "search")


class MemoryHome(Protocol):
    """Where items are kept, by scope: `kernel.memories`, or another place with these methods."""

    def add(self, scope: str, text: str, *, kind: str = "fact", pid: str = "", tainted: bool = False) -> MemoryItem: ...

    def forget(self, number: int, *, scope: str) -> bool: ...

    def items(self, scope: str, *, kind: str | None = None) -> list[MemoryItem]: ...

    def search(self, scope: str, question: str, *, most: int = 8, kind: str | None = None) -> list[MemoryItem]: ...


class Memory(FrozenSettings, frozen=True):
    """`scope` left out is the agent's name; `tools` lets the model remember and recall by itself. `items` 0 recalls
    nothing unasked. `home` left out is the kernel's store."""

    CALLBACKS: ClassVar[tuple[str, ...]] = ("home",)
    WORD: ClassVar[str] = "memory"

    scope: str = ""
    items: int = 8
    tokens: int = 500
    tools: bool = False
    home: Any = None  # a MemoryHome, which msgspec cannot check

    def __post_init__(self) -> None:
        short_text(self.scope, "scope", most=NAME_LENGTH_MAX)
        check_integer(self.items, "items", least=0, most=1_000)
        check_integer(self.tokens, "tokens", least=0, most=10**6)
        lacking = [name for name in _HOME_METHODS if not callable(getattr(self.home, name, None))]
        if self.home is not None and lacking:
            raise ConfigError(
                f"home is a MemoryHome, and {type(self.home).__name__} has no {', '.join(lacking)}",
                hint="give an object with the methods of lyra.agents.declaration.memory.MemoryHome",
                key="home",
            )

    @classmethod
    def of(cls, value: Any, *, agent: str) -> Memory | None:
        """Read the setting: True is a memory under the agent's name, None and False are no memory."""
        if value is None or value is False:
            return None
        memory = cls() if value is True else value if isinstance(value, Memory) else cls._read(value)
        return memory if memory.scope else msgspec.structs.replace(memory, scope=agent)

    @classmethod
    def _read(cls, value: Any) -> Memory:
        return cls(scope=value) if isinstance(value, str) else cls.from_data(value)

    def on(self, kernel: Kernel) -> Remembered:
        """Return the items of this scope in a kernel's store."""
        if not self.scope:
            raise ConfigError("this memory has no scope yet", hint="Memory('name'), or the agent's", key="scope")
        return Remembered(self.home_in(kernel), self.scope)

    def home_in(self, kernel: Kernel) -> MemoryHome:
        """Return where its items are kept, for an agent in this kernel."""
        home: MemoryHome = kernel.memories if self.home is None else self.home
        return home


class Remembered:
    """The items of one scope."""

    __slots__ = ("_home", "scope")

    def __init__(self, home: MemoryHome, scope: str) -> None:
        self._home = home
        self.scope = scope

    def add(self, text: str, *, kind: str = "fact") -> MemoryItem:
        return self._home.add(self.scope, text, kind=kind)

    def forget(self, item: int | MemoryItem) -> bool:
        number = item if isinstance(item, int) else item.id
        return self._home.forget(number, scope=self.scope)

    def search(self, question: str, *, most: int = 8, kind: str | None = None) -> list[MemoryItem]:
        return self._home.search(self.scope, question, most=most, kind=kind)

    def items(self, *, kind: str | None = None) -> list[MemoryItem]:
        return self._home.items(self.scope, kind=kind)

    def __len__(self) -> int:
        return len(self.items())
