"""`vega` as people call it: a real command in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cli.conftest import COMMAND as LYRA
from tests.cli.conftest import TARGET as LYRA_TARGET
from tests.cli.conftest import Done
from tests.source import KEPT, PYTHONPATH

TARGET = "lyra.cli.main:vega"
COMMAND = warm.fresh(TARGET)


class Vega:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env = {**kept, "HOME": str(folder / "home"), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"}

    def __call__(self, *args: str, given: str | None = None, command: list[str] = COMMAND, **env: str) -> Done:
        """Run it to its end; another `command` than `vega` and `lyra` is started in a fresh interpreter."""
        target = TARGET if command is COMMAND else LYRA_TARGET if command is LYRA else ""
        if target:
            ended = warm.run(target, args, cwd=self.folder, env={**self.env, **env}, given=given)
            return Done(ended.returncode, ended.stdout, ended.stderr)
        done = subprocess.run(
            [*command, *args],
            cwd=self.folder,
            env={**self.env, **env},
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def within(self, env: dict[str, str], *args: str) -> Done:
        """The same with these variables."""
        return self(*args, given=None, command=COMMAND, **env)

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def json(self, *args: str, code: int = 0) -> Any:
        done = self(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def vega(tmp_path: Path) -> Vega:
    return Vega(tmp_path)
