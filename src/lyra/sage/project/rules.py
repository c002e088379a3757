"""ProjectRules: the rules that a model is given for a folder, as far as the user trusts them.

    rules = ProjectRules(folder)
    rules.text()                 # the user's own, then those from the git root down to the folder
    rules.rules_for("lib/a.py")  # those of subfolders on the way to a file
    rules.notices                # what was left out, and why

A repository's rules come from its authors, and a hostile one would steer the model with them. So a file of rules counts
once its content is trusted (`lyra.config.trust`); until then it is left out, and a notice says so. The user's own
`$XDG_CONFIG_HOME/lyra/SAGE.md` needs no trust. Files are read again when one of them has changed: `text` looks at their
times, which costs a few system calls. Sizes are bounded, and a text that was cut says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lyra.config.files import is_own
from lyra.config.trust import FolderTrust, trust_for
from lyra.core.ids import Entropy
from lyra.core.secrets.visible import visible, without_invisible
from lyra.core.user_folders import user_folder
from lyra.sage.project.rule_files import NAMES, RULES_FOLDER, FileStamp, RuleFile, folders_above, rule_files
from lyra.tools.builtin.search_worker import PASSED_OVER

__all__ = ["FILE_CHARS_MAX", "TOTAL_CHARS_MAX", "ProjectRules", "RuleSource"]

FILE_CHARS_MAX: Final = 32_000  # of one file
TOTAL_CHARS_MAX: Final = 96_000  # of all files together
_NESTED_FOLDERS_MAX: Final = 1_000  # subfolders whose rules are remembered
_OWN_NAMES: Final = ("SAGE.md",)
_Stamps = dict[str, FileStamp | None]


class RuleSource(NamedTuple):
    """One file of rules: its path as it is shown, how many characters count, and why none do (`problem`)."""

    shown: str
    path: str
    chars: int = 0
    problem: str = ""
    trusted: bool = True


class ProjectRules:
    """The rules of one folder. `trust` is that of the caller, as for `trust_for`. `mark` begins the rules of a
    subfolder in a tool's result; a file must not know it, so a new one is made where a session has none of its own."""

    def __init__(
        self,
        folder: str,
        *,
        trust: FolderTrust | bool | None = None,
        env: Mapping[str, str] | None = None,
        mark: str = "",
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.mark = mark or Entropy().text(8)
        self._env = os.environ if env is None else env
        self._trust = trust_for(self.folder, trust, env=env)
        self._stamps: _Stamps = {}
        self._text: str | None = None
        self._sources: list[RuleSource] = []
        self._nested: dict[str, _Nested] = {}
        self._told: dict[tuple[str, str], str] = {}  # reader and subfolder → the text that was told last

    def text(self) -> str:
        """The rules of the folder as text for a system prompt; "" where there are none."""
        if self._text is None or self._stamps != _stamps(self._stamps):
            self._text = self._read()
        return self._text

    @property
    def sources(self) -> tuple[RuleSource, ...]:
        """The files that were read, those of subfolders included."""
        nested = [source for folder in self._nested.values() for source in folder.sources]
        return (*self._sources, *nested)

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for each file that is left out or cut, for the user."""
        return tuple(f"{source.shown}: {source.problem}" for source in self.sources if source.problem)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the files that the user has not trusted."""
        return tuple(source.shown for source in self.sources if not source.trusted)

    # ------------------------------------------------------------ rules of the folder
    def _read(self) -> str:
        folders = folders_above(self.folder)
        own = user_folder(self._env)
        watched = [path for folder in folders for path in _watched(folder)]
        if own is not None:
            watched += [os.path.join(own, name) for name in _OWN_NAMES]
        self._stamps = _stamps(watched)
        files = [] if own is None else [(file, True) for file in rule_files(own, names=_OWN_NAMES, rules_folder="")]
        files += [(file, self._is_trusted(file)) for folder in folders for file in rule_files(folder)]
        self._stamps.update((file.path, file.stamp) for file, _ in files if file.stamp is not None)
        parts, self._sources = _given(files, self._shown, TOTAL_CHARS_MAX)
        return "\n\n".join(parts)

    def _is_trusted(self, file: RuleFile) -> bool:
        if file.problem:
            return False
        if self._trust.covers(file.root, file.name, file.data):
            return True
        # Trust of the whole folder for one run covers its subfolders, and the folders above that count for it.
        return self._trust.is_whole(self.folder) and is_own(file.path, self.folder)

    def _shown(self, file: RuleFile) -> str:
        inside = f"{self.folder}/"
        path = file.path
        return visible(path[len(inside) :] if path.startswith(inside) else path).replace("\n", " ")

    # ------------------------------------------------------------ rules of subfolders
    def rules_for(self, path: str) -> str:
        """The rules of the subfolders on the way to a file, outermost first; "" where there are none."""
        return "\n\n".join(nested.text for nested in self._on_the_way(path) if nested.text)

    def news_for(self, path: str, reader: str = "") -> str:
        """The same without those that this reader (a pid) was told already; `tell_again` forgets that."""
        news = []
        for nested in self._on_the_way(path):
            if nested.text and self._told.get((reader, nested.folder)) != nested.text:
                self._told[reader, nested.folder] = nested.text
                news.append(nested.text)
        return "\n\n".join(news)

    def tell_again(self) -> None:
        """Tell the rules of subfolders again when a file there is read next: a compaction has removed the results that
        had them."""
        self._told.clear()

    def _on_the_way(self, path: str) -> Iterator[_Nested]:
        real = os.path.realpath(os.path.join(self.folder, path))
        if not real.startswith(f"{self.folder}/"):
            return
        folder = self.folder
        for name in real[len(self.folder) + 1 :].split("/")[:-1]:
            folder = f"{folder}/{name}"
            if name in PASSED_OVER:
                return  # rules of a dependency are not about this project
            yield self._nested_of(folder)

    def _nested_of(self, folder: str) -> _Nested:
        nested = self._nested.get(folder)
        if nested is None or nested.stamps != _stamps(nested.stamps):
            if len(self._nested) >= _NESTED_FOLDERS_MAX:
                self._nested.clear()
            nested = self._nested[folder] = self._read_nested(folder)
        return nested

    def _read_nested(self, folder: str) -> _Nested:
        stamps = _stamps(_watched(folder))
        if not any(stamps.values()):
            return _Nested(folder, stamps)
        files = [(file, self._is_trusted(file)) for file in rule_files(folder)]
        stamps.update((file.path, file.stamp) for file, _ in files if file.stamp is not None)
        parts, sources = _given(files, self._shown, FILE_CHARS_MAX)
        return _Nested(folder, stamps, "\n\n".join(parts), tuple(sources))


class _Nested(NamedTuple):
    """What is known of one subfolder."""

    folder: str
    stamps: _Stamps
    text: str = ""
    sources: tuple[RuleSource, ...] = ()


def _given(
    files: Iterable[tuple[RuleFile, bool]], shown: Callable[[RuleFile], str], most: int
) -> tuple[list[str], list[RuleSource]]:
    """The texts of the trusted files with a heading each, and what became of every file. `most` bounds all of them."""
    parts: list[str] = []
    sources: list[RuleSource] = []
    for file, trusted in files:
        name = shown(file)
        if file.problem:
            sources.append(RuleSource(name, file.path, problem=f"{file.problem}; it is left out"))
            continue
        if not trusted:
            problem = f"not trusted, so its rules are left out; `lyra trust add {visible(file.root)}` trusts it"
            sources.append(RuleSource(name, file.path, problem=problem, trusted=False))
            continue
        problem = ""
        text = without_invisible(file.text).strip()
        room = min(FILE_CHARS_MAX, most)
        if len(text) > room:
            problem = f"only the first {room} of its {len(text)} characters are given"
            text = f"{text[:room]}\n… ({problem})"
        most -= min(room, len(text))
        sources.append(RuleSource(name, file.path, min(room, len(text)), problem))
        if text:
            imported = f" (imported by {visible(file.imported_by)})" if file.imported_by else ""
            parts.append(f"## {name}{imported}\n{text}")
    return parts, sources


def _watched(folder: str) -> list[str]:
    """The paths whose change means that the rules of a folder are read again."""
    return [os.path.join(folder, name) for name in (*NAMES, RULES_FOLDER)]


def _stamps(paths: Iterable[str]) -> _Stamps:
    stamps: _Stamps = {}
    for path in paths:
        try:
            stamps[path] = FileStamp.of(os.stat(path))
        except OSError:
            stamps[path] = None
    return stamps
