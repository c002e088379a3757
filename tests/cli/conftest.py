"""`lyra` in a folder and a home of its own: in this interpreter, or as a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lyra.cli.main import main
from tests import warm
from tests.cli.agent_runner import Runner
from tests.source import KEPT, PYTHONPATH

TARGET = "lyra.cli.main:main"
COMMAND = warm.fresh(TARGET)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Lyra:
    """`lyra(...)` calls `main`, `lyra.real(...)` starts the command, `lyra.json(...)` wants success and JSON."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.command = COMMAND
        self.folder = folder / "work"
        self.folder.mkdir()
        (folder / "home").mkdir()
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.env = {**kept, "HOME": str(folder / "home"), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"}
        self._monkeypatch = monkeypatch

    def __call__(self, *args: str, **env: str) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with self._monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            patch.setattr(os, "environ", {**self.env, **env})
            code = main(args)
        _forget_provers()
        return Done(code, out.getvalue(), err.getvalue())

    def real(self, *args: str, **env: str) -> Done:
        done = warm.run(TARGET, args, cwd=self.folder, env={**self.env, **env})
        return Done(done.returncode, done.stdout, done.stderr)

    def fresh(self, *args: str, **env: str) -> Done:
        """As `real`, in an interpreter that is started for it."""
        done = subprocess.run(
            [*COMMAND, *args],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, *args: str, **env: str) -> Any:
        done = self(*args, "--json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def _forget_provers() -> None:
    """Undo what `vesper verify` adds to the search for inputs in its process: other tests would pay for the proofs."""
    for module, name in (("differential", "INPUT_MAKERS"), ("reach", "PROVERS")):
        getattr(sys.modules.get(f"lyra.vesper.evidence.{module}"), name, []).clear()


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what commands that load a file add to the import path of their process."""
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.fixture
def lyra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lyra:
    return Lyra(tmp_path, monkeypatch)


@pytest.fixture
def run(lyra: Lyra) -> Runner:
    return Runner(lyra)
