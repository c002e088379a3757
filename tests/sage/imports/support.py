"""A project and a home with files of other agents, and what an import makes of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lyra.sage.imports.apply import ImportedFile, ImportState, LeftOut, compare, undo, write
from lyra.sage.imports.sources import AGENTS, plan, project_place, user_place


class Desk:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = folder / "work"
        self.home = folder / "home"
        for path in (self.project, self.home):
            path.mkdir()
        monkeypatch.setenv("HOME", str(self.home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.project)

    @property
    def own(self) -> Path:
        return self.home / ".config" / "lyra"

    def put(self, name: str, content: Any, *, home: bool = False) -> Path:
        path = (self.home if home else self.project) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def take_over(self, *agents: str, user: bool = False) -> tuple[dict[str, str], list[LeftOut]]:
        """What became of each file, and what was left out."""
        place = user_place(os.environ) if user else project_place(str(self.project))
        state = ImportState(place)
        chosen = agents or tuple(AGENTS)
        planned, left_out = plan(place, chosen)
        changes = compare(place, planned, chosen, state)
        write(place, changes, state)
        return acts(changes), left_out

    def undo(self, *, user: bool = False) -> dict[str, str]:
        place = user_place(os.environ) if user else project_place(str(self.project))
        return acts(undo(place, ImportState(place)))

    def files(self, *, user: bool = False) -> dict[str, str]:
        """The files that an import writes, with their texts."""
        root = self.own if user else self.project
        paths = [path for path in root.rglob("*") if path.is_file()] if root.exists() else []
        named = {path.relative_to(root).as_posix(): path for path in paths}
        mine = {name: path for name, path in named.items() if user or ".lyra/" in name or name == "lyra.toml"}
        return {name: path.read_text() for name, path in mine.items()}


def acts(changes: list[ImportedFile]) -> dict[str, str]:
    return {change.planned.target: change.act for change in changes}
