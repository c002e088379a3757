"""`lyra vesper` in a folder of its own, in this interpreter."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.conftest import Done, Lyra

__all__ = ["VesperCommand"]


class VesperCommand:
    def __init__(self, lyra: Lyra) -> None:
        self._lyra = lyra
        self.folder = lyra.folder

    def __call__(self, *args: str) -> Done:
        return self._lyra("vesper", *args)

    def json(self, *args: str, code: int = 0) -> Any:
        done = self(*args, "--json")
        assert done.returncode == code, done.stderr + done.stdout
        return json.loads(done.stdout)
