"""Memories: short texts that outlive the process that learned them, by scope, with search.

Owns the items, which are durable. How agents use them (recall in the prompt, tools) is in `lyra.agents`. A scope is a
name that processes which share memories agree on. An item that exists already (same scope, kind and text) is not added
twice, so adding is idempotent. Where a scope is full, its oldest item is removed. Texts in the form of a key are
redacted before they are kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core.checking.check import check_integer, sendable_text, short_text
from lyra.core.limits import MEMORY_ITEMS_MAX, MEMORY_TEXT_MAX, NAME_LENGTH_MAX
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError
from lyra.kernel.base.acting import require
from lyra.kernel.base.subsystem import Subsystem

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process
    from lyra.kernel.shared.taint import Taint


class MemoryItem(msgspec.Struct, frozen=True):
    """One memory; `pid` is the process that added it, "" for a caller outside of processes."""

    id: int
    scope: str
    kind: str
    text: str
    time: float
    pid: str = ""
    tainted: bool = False  # the process that added it had read text from outside


class MemoryState:
    """The durable state."""

    NAME: ClassVar[str] = "memory"
    KINDS: ClassVar[frozenset[str]] = frozenset({"memory.added", "memory.forgotten"})

    def __init__(self) -> None:
        self.last_id = 0
        self.scopes: dict[str, dict[int, MemoryItem]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        scope, number = data["scope"], data["id"]
        if kind == "memory.added":
            self.last_id = max(self.last_id, number)
            item = MemoryItem(number, scope, data["kind"], data["text"], time, pid, data.get("tainted", False) is True)
            self.scopes.setdefault(scope, {})[number] = item
        else:
            del self.scopes[scope][number]
            if not self.scopes[scope]:
                del self.scopes[scope]

    def dump(self) -> Any:
        return [self.last_id, [item for items in self.scopes.values() for item in items.values()]]

    def load(self, data: Any) -> None:
        self.last_id, items = data[0], msgspec.convert(data[1], list[MemoryItem])
        for item in items:
            self.scopes.setdefault(item.scope, {})[item.id] = item


class Memories(Subsystem):
    """`kernel.memories`. A program reaches it inside an effect; a replay then does not write again."""

    def __init__(self, core: Core[Process], taint: Taint) -> None:
        self._core = core
        self._taint = taint
        self.state = MemoryState()
        self._indexes: dict[str, TextIndex] = {}  # made at the first search in a scope
        self._known: dict[str, dict[tuple[str, str], int]] = {}  # scope → (kind, text) → id

    def add(self, scope: str, text: str, *, kind: str = "fact", pid: str = "", tainted: bool = False) -> MemoryItem:
        """Remember something; gives the item, the one from before where it was known. What a marked process (or
        `tainted`) adds carries the mark to every process that recalls it."""
        self._core.raise_if_closed()
        _word(scope, "a scope")
        _word(kind, "a kind of memory")
        require("db.write", _table(scope))
        text = redact(sendable_text(short_text(text, "a memory", most=MEMORY_TEXT_MAX), "a memory")).strip()
        if not text:
            raise ConfigError("there is nothing in this memory", key="text")
        index, known = self._scope(scope)
        known_id = known.get((kind, text))
        if known_id is not None:
            return self.state.scopes[scope][known_id]
        items = self.state.scopes.get(scope, {})
        if len(items) >= MEMORY_ITEMS_MAX:
            self.forget(next(iter(items)), scope=scope)
        number = self.state.last_id + 1
        data: dict[str, Any] = {"id": number, "scope": scope, "kind": kind, "text": text}
        if tainted or self._taint.is_tainted(pid) or self._taint.is_here:
            data["tainted"] = True
        self._core.fact(self.state, pid, "memory.added", data)
        index.add(number, text)
        known[kind, text] = number
        return self.state.scopes[scope][number]

    def forget(self, number: int, *, scope: str) -> bool:
        """Drop an item; False where there was none."""
        self._core.raise_if_closed()
        require("db.write", _table(scope))
        item = self.state.scopes.get(scope, {}).get(number)
        if item is None:
            return False
        index, known = self._scope(scope)
        self._core.fact(self.state, item.pid, "memory.forgotten", {"id": number, "scope": scope})
        index.remove(number, item.text)
        del known[item.kind, item.text]
        return True

    def items(self, scope: str, *, kind: str | None = None) -> list[MemoryItem]:
        """All items of a scope, oldest first."""
        require("db.read", _table(scope))
        items = self.state.scopes.get(scope, {}).values()
        return self._read([item for item in items if kind is None or item.kind == kind])

    def search(self, scope: str, question: str, *, most: int = 8, kind: str | None = None) -> list[MemoryItem]:
        """Return the items that share words with the question, the best first."""
        check_integer(most, "most", least=1)
        require("db.read", _table(scope))
        items = self.state.scopes.get(scope)
        if not items:
            return []
        index, _ = self._scope(scope)
        matches = index.search(question, most if kind is None else len(items))
        return self._read([items[number] for number, _ in matches if kind is None or items[number].kind == kind][:most])

    def _read(self, items: list[MemoryItem]) -> list[MemoryItem]:
        """Return the items, which carry their mark to the process that reads them."""
        if any(item.tainted for item in items):
            self._taint.mark_here("a memory")
        return items

    def scopes(self) -> list[str]:
        return list(self.state.scopes)

    def _scope(self, scope: str) -> tuple[TextIndex, dict[tuple[str, str], int]]:
        index = self._indexes.get(scope)
        if index is None:
            index = self._indexes[scope] = TextIndex()
            known = self._known[scope] = {}
            for item in self.state.scopes.get(scope, {}).values():
                index.add(item.id, item.text)
                known[item.kind, item.text] = item.id
        return index, self._known[scope]


def _table(scope: str) -> str:
    """Return a scope of memories, as a right names it."""
    return f"memories.{scope}"


def _word(value: Any, what: str) -> None:
    if not sendable_text(short_text(value, what, most=NAME_LENGTH_MAX), what):
        raise ConfigError(f"{what} has a name")


_WORD: Final = re.compile(r"\w+", re.UNICODE)
_SATURATION: Final = 1.2  # how soon repetitions of a word stop to count (k1)
_LENGTH: Final = 0.75  # how much the length of a text lowers its score (b)


def words(text: str) -> list[str]:
    return [_strip_plural(word) for word in _WORD.findall(text.casefold())]


def _strip_plural(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class TextIndex:
    """An index of texts, each added under a number."""

    __slots__ = ("_lengths", "_total", "_with")

    def __init__(self) -> None:
        self._with: dict[str, dict[int, int]] = {}  # word → number → how often
        self._lengths: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, number: int, text: str) -> None:
        text_words = words(text)
        self._lengths[number] = len(text_words)
        self._total += len(text_words)
        for word, count in Counter(text_words).items():
            self._with.setdefault(word, {})[number] = count

    def remove(self, number: int, text: str) -> None:
        """Take out what was added under this number, with this text."""
        self._total -= self._lengths.pop(number)
        for word in set(words(text)):
            holders = self._with[word]
            del holders[number]
            if not holders:
                del self._with[word]

    def search(self, question: str, most: int) -> list[tuple[int, float]]:
        """Return the best `most` numbers with their scores, best first; only those that share a word."""
        scores: dict[int, float] = {}
        count = len(self._lengths)
        mean = self._total / count if count else 1.0
        for word in set(words(question)):
            holders = self._with.get(word)
            if holders is None:
                continue
            weight = math.log(1 + (count - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, times in holders.items():
                long = 1 - _LENGTH + _LENGTH * self._lengths[number] / mean
                gain = weight * times * (_SATURATION + 1) / (times + _SATURATION * long)
                scores[number] = scores.get(number, 0.0) + gain
        return sorted(scores.items(), key=lambda pair: (-pair[1], -pair[0]))[:most]
