"""`vesper` as people call it, in a folder of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests import warm
from tests.cli.conftest import Done
from tests.source import KEPT, PYTHONPATH

__all__ = ["VesperCommand"]


class VesperCommand:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env = {**kept, "HOME": str(folder / "home"), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"}

    def __call__(self, *args: str) -> Done:
        ended = warm.run("lyra.cli.main:vesper", args, cwd=self.folder, env=self.env, given=None)
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def json(self, *args: str, code: int = 0) -> Any:
        done = self(*args, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)
