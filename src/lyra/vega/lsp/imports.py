"""Checking a file without checking again what it imports, as long as that has not changed.

What an imported file declares, and what is wrong with it, depends on its text and on those of the files it imports in
turn, and on nothing else; so it is found out once for these texts. Files that import each other in a circle depend on
who was asked first: they are checked every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lyra.vega.checker.checker import Checker, Load
from lyra.vega.checker.scope import Binding
from lyra.vega.syntax.source import Diagnostic, Source

# A file → all texts that what is known of it depends on, by path.
Reach = Callable[[str], "dict[str, str]"]


class _Imported(NamedTuple):
    texts: dict[str, str]
    members: dict[str, Binding] | None
    problems: list[Diagnostic]
    thrown: frozenset[str]
    has_foreign_tools: bool
    has_foreign_errors: bool


class Imports:
    """What is known of imported files."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.kept: dict[str, _Imported] = {}


class ImportingChecker(Checker):
    def __init__(
        self, source: Source, load: Load | None, imports: Imports | None = None, outer: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(source, load, {source.name: {}}, ())
        self.imports = imports
        self.outer = outer | {source.name}  # the files whose imports led here

    def imported(self, source: Source) -> dict[str, Binding] | None:
        texts: dict[str, str] = self.imports.reach(source.name) if self.imports is not None else {}
        if self.imports is None or self.outer & texts.keys():
            return super().imported(source)
        known = self.imports.kept.get(source.name)
        if known is None or not _same(known.texts, texts):
            known = self.imports.kept[source.name] = self._checked(source, texts)
        self.check.thrown |= known.thrown
        self.check.has_foreign_tools |= known.has_foreign_tools
        self.check.has_foreign_errors |= known.has_foreign_errors
        self.others += [problem for problem in known.problems if problem not in self.others]
        self.files[source.name] = known.members or {}
        return known.members

    def _checked(self, source: Source, texts: dict[str, str]) -> _Imported:
        """The file by itself, as if no file had been checked before it."""
        alone = ImportingChecker(Source(source.name, ""), self.load, self.imports, self.outer)
        alone.depth = self.depth
        members = Checker.imported(alone, source)
        check = alone.check
        return _Imported(texts, members, alone.others, check.thrown, check.has_foreign_tools, check.has_foreign_errors)


def _same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether these are the very same texts; equal ones in other places are read again, which is harmless."""
    return before.keys() == now.keys() and all(before[name] is now[name] for name in before)
