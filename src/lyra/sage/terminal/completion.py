"""The names of the files of a folder, for completion: from ripgrep, which honours .gitignore, or from a walk.

The list is made in the background, and again when it is old; a name is looked up within milliseconds in a large folder.
Only names inside the folder are in it, without links that lead out, hidden folders and folders of dependencies. Names
with control characters are left out. `PromptCompleter`
completes `@` and a file name, `/` and a command; `PromptHistory` keeps the prompts in a private file, without keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import accumulate, islice
from pathlib import Path
from typing import Final, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lyra.core.clock import Clock
from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.user_folders import data_folder
from lyra.kernel.base.tasks import Tasks
from lyra.sage.terminal.text.styled_lines import exact

_FILES_MAX: Final = 50_000
_AGE_S: Final = 10.0  # after this the list is made again
_SEARCH_S_MAX: Final = 5.0
_MATCHES_MAX: Final = 50
_LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


class FileIndex:
    """The names of a folder in the orders that they are looked up in, all in small letters beside the names."""

    __slots__ = ("by_end", "by_length", "by_start", "line_starts", "lines")

    def __init__(self, names: Iterable[str] = ()) -> None:
        named = list(names)
        folders = {f"{os.path.dirname(name)}/" for name in named if "/" in name}
        shown = {name for name in (*named, *folders) if name and name.isprintable()}
        self.by_start = sorted((name.lower(), name) for name in shown)
        self.by_end = sorted((lower.rstrip("/").rpartition("/")[2], name) for lower, name in self.by_start)
        self.by_length = sorted(self.by_start, key=lambda pair: len(pair[0]))
        self.lines = "".join(f"\n{lower}" for lower, _ in self.by_length)  # one search of it is quicker than many
        self.line_starts = [0, *accumulate(len(lower) + 1 for lower, _ in self.by_length)]

    def matching(self, typed: str, most: int) -> list[str]:
        """Return the names that match what was typed, best first: those that begin with it, those whose last part does,
        those that have it anywhere, and those that have its letters in their order, close together. A name of a later
        kind is looked for only where the earlier kinds are not enough."""
        typed = typed.lower()
        if not typed:
            return [name for _, name in self.by_length[:most]]
        matches: dict[str, None] = dict.fromkeys(_begin(self.by_start, typed, most))
        if len(matches) < most:
            matches.update(dict.fromkeys(_begin(self.by_end, typed, most)))
        if len(matches) < most:
            matches.update(dict.fromkeys(islice(self._with_part(typed), most)))
        if len(matches) < most:
            matches.update(dict.fromkeys(self._with_letters(typed, most)))
        return list(matches)[:most]

    def _with_part(self, typed: str) -> Iterator[str]:
        """Yield the names that have this text anywhere, the shortest first."""
        position = self.lines.find(typed)
        while position >= 0:
            index = bisect_right(self.line_starts, position) - 1
            yield self.by_length[index][1]
            position = self.lines.find(typed, self.line_starts[index + 1])

    def _with_letters(self, typed: str, most: int) -> list[str]:
        """Return the names that have these letters in their order; those come first where they stand closest."""
        first, *others = (re.escape(char) for char in typed)
        rest = "".join(f"[^{char}\n]*+{char}" for char in others)
        matches = re.finditer(f"\n[^{first}\n]*+({first}{rest})", self.lines)
        closest = nsmallest(most, ((match.end(1) - match.start(1), match.start()) for match in matches))
        return [self.by_length[bisect_left(self.line_starts, start)][1] for _, start in closest]


def _begin(pairs: list[tuple[str, str]], typed: str, most: int) -> list[str]:
    """Return the shortest names whose key begins with what was typed, of pairs in the order of their keys."""
    start, end = bisect_left(pairs, (typed, "")), bisect_left(pairs, (f"{typed}\U0010ffff", ""))
    return nsmallest(most, (name for _, name in pairs[start:end]), key=lambda name: (len(name), name))


class FileNames:
    """The list for one folder. An old list is used while a new one is made."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._names: FileIndex | None = None
        self._read_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    async def matching(self, typed: str) -> list[str]:
        """Return the names that match what was typed, best first."""
        reading = self.refresh()
        if self._names is None and reading is not None:
            await asyncio.wait([reading])
        return (self._names or FileIndex()).matching(typed, _MATCHES_MAX)

    def refresh(self) -> asyncio.Task[None] | None:
        """Begin to make the list anew where it is old; gives what makes it, if anything does."""
        is_old = self._clock.monotonic() - self._read_s >= _AGE_S
        if is_old and (self._reading is None or self._reading.done()):
            self._reading = self._tasks.start(self._read(), name="file names")
        return self._reading

    async def close(self) -> None:
        await self._tasks.close()

    async def _read(self) -> None:
        names = await self._from_ripgrep()
        if names is None:
            names = await asyncio.to_thread(self._from_walk)
        self._names = await asyncio.to_thread(FileIndex, names)
        self._read_s = self._clock.monotonic()

    async def _from_ripgrep(self) -> list[str] | None:
        program = shutil.which("rg")
        if program is None:
            return None
        try:
            process = await asyncio.create_subprocess_exec(
                *(program, "--files", "--no-messages", "--null", "--no-config"),
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            return None
        try:
            async with asyncio.timeout(_SEARCH_S_MAX):
                output, _ = await process.communicate()
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return output.decode("utf-8", "replace").split("\0")[:_FILES_MAX]

    def _from_walk(self) -> list[str]:
        names: list[str] = []
        for folder, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
            below = os.path.relpath(folder, self._folder)
            names += [name if below == "." else f"{below}/{name}" for name in files if not name.startswith(".")]
            if len(names) >= _FILES_MAX:
                break
        return names[:_FILES_MAX]


# ---------------------------------------------------------------- completion

_FILE: Final = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND: Final = re.compile(r"/(\S*)$")
_LETTERS: Final = re.compile(r"[\w./@+-]+\Z")


class CommandName(NamedTuple):
    name: str  # without its slash
    summary: str = ""


class PromptCompleter(Completer):
    """Completes the word before the cursor."""

    def __init__(self, files: FileNames, commands: Callable[[], Sequence[CommandName]]) -> None:
        self._files = files
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Unused: all completions are asynchronous."""
        return ()

    async def get_completions_async(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002 - as the class above has it
    ) -> AsyncGenerator[Completion, None]:
        before = document.text_before_cursor
        command = _COMMAND.fullmatch(before)
        if command is not None:
            for name, summary in self._commands():
                if name.startswith(command[1]):
                    yield Completion(f"/{name}", -len(before), display=f"/{name}", display_meta=exact(summary))
            return
        mention = _FILE.search(before)
        if mention is None:
            return
        for path in await self._files.matching(mention[1]):
            text = path if _LETTERS.match(path) else f'"{path}"'
            yield Completion(f"@{text}", -len(mention[0].lstrip()), display=exact(path))


# ---------------------------------------------------------------- history

_ENTRIES_MAX: Final = 1_000
_ENTRY_CHARS_MAX: Final = 20_000
_FILE_BYTES_MAX: Final = 8 << 20


def history_file() -> Path:
    return data_folder() / "sage-history"


class PromptHistory:
    """The entries, oldest first. `without_keys` masks the keys that the session knows."""

    __slots__ = ("_path", "_without_keys", "entries")

    def __init__(self, path: Path, without_keys: Callable[[str], str] = str) -> None:
        self._path = path
        self._without_keys = without_keys
        self.entries = self._read()

    def add(self, text: str) -> None:
        """Keep one more; the same as the last is not kept twice."""
        text = redact(self._without_keys(text)[:_ENTRY_CHARS_MAX])
        if not text.strip() or (self.entries and self.entries[-1] == text):
            return
        self.entries.append(text)
        try:
            if len(self.entries) > 2 * _ENTRIES_MAX:
                self.entries = self.entries[-_ENTRIES_MAX:]
                self._write(self.entries, os.O_TRUNC)
            else:
                self._write([text], os.O_APPEND)
        except OSError:
            return  # the folder cannot be written; the history is of this run alone

    def _read(self) -> list[str]:
        try:
            with open(self._path, "rb") as file:
                data = file.read(_FILE_BYTES_MAX)
        except OSError:
            return []
        entries = []
        for line in data.decode("utf-8", "replace").splitlines()[-2 * _ENTRIES_MAX :]:
            try:
                text = json.loads(line)
            except ValueError:
                continue
            if isinstance(text, str) and text.strip():
                entries.append(text)
        return entries

    def _write(self, entries: Iterable[str], flag: int) -> None:
        make_folder(self._path.parent, private=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flag, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write("".join(f"{json.dumps(entry)}\n" for entry in entries))
