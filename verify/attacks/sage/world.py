"""SageWorld: a project, a home and an outside folder of their own, and the faces of Sage in them.

Owns what an attempt starts from and how it is carried out: a LiveSession in this process with a scripted model, and
`sage` as a process of its own. Judges nothing. A Mark is a file that a hostile program would make: where it exists
after an attempt, the program ran.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.sage.agent.live import LiveSession, SessionStart

__all__ = ["Answers", "SageWorld", "call", "sage_world", "say"]

_SAGE: Final = "import sys; from lyra.cli.main import sage; sys.exit(sage())"
_QUICK: Final = "/dev/shm"  # noqa: S108 - a folder of its own is made in it
_KEPT: Final = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "LYRA_TESTS_HOME", "VIRTUAL_ENV")
_COMMAND_S: Final = 60.0


def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """A reply of the model with one tool call."""
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


class SageWorld:
    """`folder` is the project; `outside` is a folder that no attempt may read or change."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root = root
        self.folder, self.home, self.outside = root / "work", root / "home", root / "outside"
        for path in (self.folder, self.home, self.outside):
            path.mkdir()
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self.env = {**kept, "HOME": str(self.home), **env}
        self._scripts = 0

    # ------------------------------------------------------------ what is there
    def write(self, name: str, text: str, *, executable: bool = False) -> Path:
        """Write a file; its path starts at the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if executable:
            path.chmod(0o755)
        return path

    def user_file(self, name: str, text: str) -> Path:
        """Write a file in the folder of the user's own settings."""
        return self.write(str(self.home / ".config" / "lyra" / name), text)

    def program(self, mark: str) -> tuple[Path, Path]:
        """A hostile program outside of the project, and the mark that it would make."""
        path, made = self.root / f"{mark}.sh", self.root / "marks" / mark
        made.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho ran >> '{made}'\ncat\n")
        path.chmod(0o755)
        return path, made

    def mark(self, name: str) -> Path:
        """A file that is made by what an attempt injects."""
        folder = self.root / "marks"
        folder.mkdir(exist_ok=True)
        return folder / name

    def git(self, *words: str) -> str:
        """Run git in the project as the user would, before its settings are hostile."""
        settings = ("-c", "user.name=U", "-c", "user.email=u@x", "-c", "commit.gpgSign=false")
        command = ["git", "-C", str(self.folder), *settings, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.env).stdout

    @property
    def sessions(self) -> Path:
        return self.home / ".local" / "share" / "lyra" / "sessions"

    # ------------------------------------------------------------ the faces
    def script(self, *replies: dict[str, Any]) -> str:
        """The name of a model that gives these replies; without any it repeats what it is told."""
        if not replies:
            return "sim/echo"
        self._scripts += 1
        path = self.root / f"script{self._scripts}.json"
        path.write_text(json.dumps({"sequence": replies}))
        return f"sim/script:{path}"

    def open(self, *replies: dict[str, Any], start: dict[str, Any] | None = None, **options: Any) -> LiveSession:
        """A session whose model gives these replies."""
        model = options.pop("model", "") or self.script(*replies)
        chosen = HeadlessOptions(model=model, folder=str(self.folder), **options)
        config = Config.load(self.folder, trust=chosen.trust)
        return LiveSession(chosen, config, start=SessionStart(**(start or {})))

    def sage(self, *words: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """`sage` with these arguments, as a process of its own."""
        return subprocess.run(
            [sys.executable, "-c", _SAGE, *words],
            cwd=self.folder,
            env={**self.env, **env},
            input=given,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )

    @property
    def command(self) -> Sequence[str]:
        """The command that starts `sage`."""
        return (sys.executable, "-c", _SAGE)


@contextlib.contextmanager
def sage_world(**env: str) -> Iterator[SageWorld]:
    """A world of its own; its environment is that of this process meanwhile."""
    with tempfile.TemporaryDirectory(prefix="lyra-sage-", dir=_QUICK if os.path.isdir(_QUICK) else None) as folder:
        world = SageWorld(Path(os.path.realpath(folder)), env)
        with mock.patch.dict(os.environ, world.env, clear=True), contextlib.chdir(world.folder):
            yield world


Answers = Callable[[Any], tuple[str, dict[str, Any] | None]]


async def say(session: LiveSession, content: Any, answers: Answers | None = None, **more: Any) -> list[Any]:
    """Put a message to the session; `answers` gives the decision, and edited arguments, for each question."""
    lines: list[Any] = []
    async for line in session.send(content, **more):
        lines.append(line)
        if line["type"] == "interrupt":
            decision, arguments = answers(line) if answers is not None else ("deny", None)
            await session.answer(line["id"], decision, arguments=arguments)
    return lines
