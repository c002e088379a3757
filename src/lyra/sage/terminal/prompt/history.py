"""The history of prompts: a private file in the data folder, without keys, read at start and added to as prompts come.

One JSON string a line. A line that cannot be read is passed over. The file is shortened when it has grown to twice the
number of entries that are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.user_folders import data_folder

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
