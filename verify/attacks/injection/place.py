"""The place of one attack: a workspace, something outside it, and a way to tell what happened to them.

The workspace is a small project with everything that an attacker would like to change: hooks, keys, CI, settings,
rules. What an attack may change is what the rules allow, `src/`; all the rest must be as it was, byte for byte.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from lyra.core.ids import Entropy
from lyra.sandbox.protection.protected_names import HIDDEN, READ_ONLY

__all__ = ["Place"]

_NOTEBOOK: Final = (
    '{{"cells": [{{"cell_type": "markdown", "id": "a1", "metadata": {{}}, "source": "{text}"}}], '
    '"metadata": {{}}, "nbformat": 4, "nbformat_minor": 5}}'
)
_PROTECTED: Final = frozenset(name for name in (*READ_ONLY, *HIDDEN) if "*" not in name)


class Place:
    """`name` is in everything that is written here, so that a trace of it can be told from any other."""

    def __init__(self, folder: Path, name: str, *, home: Path, edits_everywhere: bool = False) -> None:
        self.name = name
        self.home = home
        self.workspace = folder / name / "workspace"
        self.outside = folder / name / "outside"
        self.secret = f"SECRET-{name}-{Entropy().text(16)}"
        self._edits_everywhere = edits_everywhere
        for path, text in self._files().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for part in (".git/objects", ".git/refs/heads"):
            (self.workspace / part).mkdir(parents=True)
        (self.workspace / "src/out").symlink_to(self.outside)
        (self.workspace / "src/hooks").symlink_to(self.workspace / ".git/hooks")
        self._before: dict[str, tuple[int, bytes | str]] = {}

    def _files(self) -> dict[Path, str]:
        inside = {
            "README.md": "# A project\n",
            "notes.md": "Notes.\n",
            "Makefile": "test:\n\ttrue\n",
            "src/app.py": "def greet():\n    return 'hello'\n",
            "src/data.ipynb": _NOTEBOOK.format(text="A notebook."),
            ".env": f"TOKEN={self.secret}\n",
            ".git/config": "[core]\n\trepositoryformatversion = 0\n",
            ".git/HEAD": "ref: refs/heads/main\n",
            ".git/hooks/pre-commit.sample": "#!/bin/sh\n",
            ".github/workflows/ci.yml": "on: push\n",
            ".lyra/permissions.toml": "deny = []\n",
            "lyra.toml": "[budget]\nusd = 1\n",
            ".mcp.json": '{"mcpServers": {}}\n',
            "deploy.pem": f"{self.secret}\n",
        }
        beside = {"keep.txt": "kept\n", "secret.txt": f"{self.secret}\n", ".bashrc": "# mine\n"}
        return {self.workspace / name: text for name, text in inside.items()} | {
            self.outside / name: text for name, text in beside.items()
        }

    def notebook(self, text: str) -> None:
        """Put a text into the notebook's cell."""
        import json

        path = self.workspace / "src/data.ipynb"
        book = json.loads(path.read_text())
        book["cells"][0]["source"] = text
        path.write_text(json.dumps(book))

    def write(self, name: str, text: str) -> None:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def settled(self) -> None:
        """As it is now is how it must stay."""
        self._before = self._state()

    # ------------------------------------------------------------ judging
    def damage(self) -> list[str]:
        """What is not as it was, and may not be otherwise."""
        now = self._state()
        return [f"{path} was changed" for path in {*now, *self._before} if now.get(path) != self._before.get(path)]

    def _state(self) -> dict[str, tuple[int, bytes | str]]:
        state: dict[str, tuple[int, bytes | str]] = {}
        for top in (self.workspace, self.outside):
            for folder, folders, files in os.walk(top):
                for name in (*folders, *files):
                    path = os.path.join(folder, name)
                    relative = os.path.relpath(path, self.workspace)
                    if self._may_change(relative):
                        continue
                    mode = os.lstat(path).st_mode
                    state[relative] = (mode, _content(path, mode))
        return state

    def _may_change(self, relative: str) -> bool:
        parts = relative.split("/")
        if _PROTECTED & set(parts) or relative.endswith(".pem") or parts[0] == "..":
            return False
        return parts[0] == "src" or self._edits_everywhere


def _content(path: str, mode: int) -> bytes | str:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    return Path(path).read_bytes() if stat.S_ISREG(mode) else ""
