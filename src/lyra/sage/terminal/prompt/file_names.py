"""The names of the files of a folder, for completion: from ripgrep, which honours .gitignore, or from a walk.

The list is made in the background and again when it is old. Only names inside the folder are in it, without links that
lead out, hidden folders and folders of dependencies. Names with control characters are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from typing import Final

from lyra.core.clock import Clock

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
        """The names that match what was typed, best first."""
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
    """How well a name matches: its start, the start of its last part, anywhere, its letters in order; None: not."""
    if name.startswith(typed):
        return 0
    if name.rstrip("/").rpartition("/")[2].startswith(typed):
        return 1
    if typed in name:
        return 2
    rest = iter(name)
    return 3 if all(char in rest for char in typed) else None
