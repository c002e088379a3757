"""A person with a home and a project, whose extension files the tests write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lyra.config.trust import FolderTrust, TrustAnswers
from lyra.sage.extensions.extension_files import ExtensionPlace, extension_places
from lyra.sage.extensions.extensions import extension_asks
from tests import trusting


class Desk:
    """`user` is the folder of the user's own settings, `project` the one of a project; `env` names the first."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.config = folder / "config"
        self.user = self.config / "lyra"
        self.data = folder / "data"
        for path in (self.project, self.user, self.data):
            path.mkdir(parents=True)
        self.env = {"HOME": str(folder), "XDG_CONFIG_HOME": str(self.config), "XDG_DATA_HOME": str(self.data)}

    def places(self, *, trusted: bool | None = True, **options: Any) -> tuple[ExtensionPlace, ...]:
        return extension_places(str(self.project), trusted=trusted, env=self.env, **options)

    def of_user(self, name: str, text: str | bytes) -> Path:
        return put(self.user / name, text)

    def of_project(self, name: str, text: str | bytes) -> Path:
        return put(self.project / ".lyra" / name, text)

    def trust(self) -> None:
        """Answer yes for every file that asks for something, as `lyra trust add` does."""
        trusting.answer(self.project, self.env, more=extension_asks(str(self.project)))

    def kept_trust(self) -> FolderTrust:
        return FolderTrust(TrustAnswers.for_user(self.env))


def put(path: Path, text: str | bytes) -> Path:
    """Write a file as an editor does: a new file in the place of the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(text.encode() if isinstance(text, str) else text)
    os.replace(temporary, path)
    return path
