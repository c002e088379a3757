"""The names of the files of a folder, for completion: from ripgrep, which honours .gitignore, or from a walk.

The list is made in the background and again when it is old. Only names inside the folder are in it, without links that
lead out, hidden folders and folders of dependencies. Names with control characters are left out. `PromptCompleter`
completes `@` and a file name, `/` and a command; `PromptHistory` keeps the prompts in a private file, without keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lyra.core.clock import Clock
from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.user_folders import data_folder
from lyra.sage.terminal.text.styled_lines import exact

_FILES_MAX: Final = 50_000
_AGE_S: Final = 10.0  # after this the list is made again
_SEARCH_S_MAX: Final = 5.0
_MATCHES_MAX: Final = 50
_LEFT_OUT: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


class FileNames:
    """The list for one folder."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._names: list[str] = []
        self._read_s = float("-inf")
        self._lock = asyncio.Lock()

    async def matching(self, typed: str) -> list[str]:
        """Return the names that match what was typed, best first."""
        await self._refresh()
        typed = typed.lower()
        ranked: list[tuple[int, int, str]] = []
        for name in self._names:
            rank = _rank(name.lower(), typed)
            if rank is not None:
                ranked.append((rank, len(name), name))
        ranked.sort()
        return [name for _, _, name in ranked[:_MATCHES_MAX]]

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock.monotonic() - self._read_s < _AGE_S:
                return
            names = await self._from_ripgrep()
            if names is None:
                names = await asyncio.to_thread(self._from_walk)
            folders = {f"{os.path.dirname(name)}/" for name in names if "/" in name}
            self._names = sorted(name for name in (*names, *folders) if name.isprintable())
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


def _rank(name: str, typed: str) -> int | None:
    """Return how well a name matches: its start, the start of its last part, anywhere, its letters in order; None:
    not."""
    if name.startswith(typed):
        return 0
    if name.rstrip("/").rpartition("/")[2].startswith(typed):
        return 1
    if typed in name:
        return 2
    rest = iter(name)
    return 3 if all(char in rest for char in typed) else None


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
