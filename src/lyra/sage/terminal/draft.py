"""Draft: what the person has typed and not sent, kept in a file while it is typed, so that no crash loses it.

One file a session, under the user's data folder and readable by them alone, with keys masked as in the history. It is
locked while its session is open; one that no program has locked was left by a crash or by a terminal that was closed,
and the next session of the same folder takes it over (`take_left_over`). An empty draft has no file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.user_folders import data_folder

_WRITE_S: Final = 0.2  # after a key, the file is written at the latest
_CHARS_MAX: Final = 200_000
_FILES_MAX: Final = 200  # more are left over from long ago: the oldest are removed


def drafts_folder() -> Path:
    return data_folder() / "sage-drafts"


class Draft:
    """The draft of one session. `read` gives what is typed and not sent now."""

    def __init__(self, session: str, folder: str, read: Callable[[], str], without_keys: Callable[[str], str]) -> None:
        self._path = drafts_folder() / f"{session}.json"
        self._folder = folder
        self._read = read
        self._without_keys = without_keys
        self._file: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._written = ""

    def schedule(self) -> None:
        """Write the file soon."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_S, self.write)

    def write(self) -> None:
        """Write the file, if something else is typed than it has. Where it cannot be written there is no draft."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = redact(self._without_keys(self._read()[:_CHARS_MAX]))
        if text == self._written:
            return
        with contextlib.suppress(OSError):
            if self._file is None:
                make_folder(self._path.parent, private=True)
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data = json.dumps({"folder": self._folder, "text": text}).encode() if text.strip() else b""
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))
            self._written = text

    def close(self) -> None:
        """Write what is typed now; without any text the file is removed."""
        self.write()
        if self._file is not None:
            if not self._written.strip():
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def take_left_over(folder: str) -> str:
    """Return the newest draft of a folder that no open session has, and remove it; empty where there is none."""
    try:
        paths = sorted(drafts_folder().glob("*.json"), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
    except OSError:
        return ""
    for path in paths[_FILES_MAX:]:
        path.unlink(missing_ok=True)
    for path in paths[:_FILES_MAX]:
        text = _take(path, folder)
        if text:
            return text
    return ""


def _take(path: Path, folder: str) -> str:
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept = json.loads(os.read(file, 8 * _CHARS_MAX) or b"{}")
        if not isinstance(kept, dict) or kept.get("folder") != folder:
            return ""
        path.unlink(missing_ok=True)
        return str(kept.get("text", "")).strip("\n")
    except (OSError, ValueError):  # another session has it open, or it was cut off in the middle
        return ""
    finally:
        os.close(file)
