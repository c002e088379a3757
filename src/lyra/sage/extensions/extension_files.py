"""ExtensionFiles: the extensions of one kind in all places, read again when their files change.

Owns what commands, skills and sub-agents have in common: which files there are, that of one name the first place's
counts, that a plugin's and a project's names come before the user's, that a file which becomes invalid keeps its last
good version, and that each problem is told with file and line. A subclass reads one file. `refresh` costs a listing and
a `stat` for each file; `reload` calls it at most once a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar, Generic, Protocol, TypeVar

from lyra.core.checking.check import Mistake
from lyra.core.checking.watched_files import WatchedFiles
from lyra.core.clock import Clock, loop_clock
from lyra.sage.extensions.front_matter import FILE_BYTES_MAX, MarkdownFile, one_line
from lyra.sage.extensions.places import ExtensionPlace, markdown_files
from lyra.tools.permissions.rules import Rule


def declared_tools(file: MarkdownFile, key: str, place: ExtensionPlace) -> tuple[str, ...] | None:
    """The tools that a file names under `key`; of a plugin's file all that the plugin declares where it names none, and
    never more. None has no limit."""
    tools = file.tools(key)
    if place.tools is None or file.report.mistakes:
        return tools
    declared = [Rule(text, "allow") for text in place.tools]
    for tool in tools or ():
        if not any(covers(rule, Rule(tool, "allow")) for rule in declared):
            file.report.add((key,), f"{one_line(tool)} is not among the tools that the plugin declares")
    return place.tools if tools is None else tools


def covers(rule: Rule, other: Rule) -> bool:
    """Whether every call that `other` matches is matched by `rule`, as far as their texts show it."""
    return rule.text == other.text or (rule.bare and rule.covers_tool(other.tool))


class Named(Protocol):
    """An extension: it has a name, and was read from a file."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class ExtensionFiles(Generic[Entry]):
    """The entries of one kind by name. A subclass has the name of the folder, a word for sentences, and `_read`."""

    KIND: ClassVar[str]
    WORD: ClassVar[str]

    def __init__(self, places: Iterable[ExtensionPlace], *, clock: Clock | None = None) -> None:
        self._clock = clock or loop_clock()
        self._places: tuple[ExtensionPlace, ...] = ()
        self._files: dict[ExtensionPlace, WatchedFiles[Entry]] = {}
        self._entries: dict[str, Entry] = {}
        self._mistakes: tuple[Mistake, ...] = ()
        self.set_places(places)

    def set_places(self, places: Iterable[ExtensionPlace]) -> bool:
        """Read these places from here on; True if an entry or a mistake has changed."""
        self._places = tuple(places)
        known = self._files
        self._files = {place: known.get(place) or self._watched(place) for place in self._places}
        return self.refresh()

    def entries(self) -> dict[str, Entry]:
        """The entries as of the last refresh."""
        return dict(self._entries)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self._mistakes

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files, as texts fit for a terminal: `file:line: sentence`."""
        return tuple(one_line(str(mistake)) for mistake in self._mistakes)

    def refresh(self) -> bool:
        """Look at the files; True if an entry or a mistake has changed."""
        before = self._entries, self._mistakes
        entries: dict[str, Entry] = {}
        mistakes: list[Mistake] = []
        for place, files in self._files.items():
            paths, wrong = self._listed(place)
            mistakes += wrong
            files.refresh(paths)
            for path in paths:
                mistakes += files.mistakes(path)
                entry = files.value(path)
                if entry is not None:
                    self._add(entry, path, entries, mistakes)
        self._entries, self._mistakes = entries, tuple(mistakes)
        return before != (self._entries, self._mistakes)

    def _add(self, entry: Entry, path: str, entries: dict[str, Entry], mistakes: list[Mistake]) -> None:
        """Add an entry, unless its name is taken: a model and a person would not know which of two is meant."""
        taken = next((known for name, known in entries.items() if name.lower() == entry.name.lower()), None)
        if taken is None:
            entries[entry.name] = entry
        elif self._is_same_place(taken, entry):
            mistakes.append(Mistake(path, 1, 1, f"there is {self.WORD} {entry.name!r} already"))
        elif getattr(taken, "origin", "") == "plugin":
            message = f"the plugin {getattr(taken, 'plugin', '')} has {self.WORD} {entry.name!r}, which counts"
            mistakes.append(Mistake(path, 1, 1, message))

    @staticmethod
    def _is_same_place(left: Entry, right: Entry) -> bool:
        return all(getattr(left, key, "") == getattr(right, key, "") for key in ("origin", "plugin"))

    def _watched(self, place: ExtensionPlace) -> WatchedFiles[Entry]:
        return WatchedFiles(
            lambda data, path: self._read(data, path, place),
            bytes_max=FILE_BYTES_MAX,
            accept=place.accept,
            follow_links=place.follows_links,
            clock=self._clock,
        )

    def _listed(self, place: ExtensionPlace) -> tuple[list[str], list[Mistake]]:
        """The files of a place; a subclass may leave some out."""
        return markdown_files(place, self.KIND)

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[Entry | None, list[Mistake]]:
        """The entry of one file, or its mistakes."""
        raise NotImplementedError(os.path.basename(path))
