"""`sage` in a pseudo-terminal, with a scripted model behind real HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra.testing.mock import MockServer
from tests import warm
from tests.sage.terminal.pty_terminal import SAGE, PtyTerminal


class ScriptedModel:
    """A mock server in a thread of its own; `requests` are those that it has answered."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[MockServer] = []

    def serve(self, script: dict[str, Any]) -> dict[str, str]:
        """Start a server with this script; the variables that lead to it."""
        server = MockServer(script)
        self._servers.append(server)
        asyncio.run_coroutine_threadsafe(server.__aenter__(), self._loop).result(10)
        return server.env

    @property
    def requests(self) -> list[Any]:
        return list(self._servers[-1].requests)

    def close(self) -> None:
        for server in self._servers:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class SageTerminal:
    """Starts `sage` in a folder and a home of its own."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "home"
        (self.home / ".local/share/lyra").mkdir(parents=True, mode=0o700)
        (self.home / ".local/share/lyra").chmod(0o700)
        (self.home / ".local/share/lyra/sage-history").write_text('"an earlier prompt"\n')
        self.model = model
        self._terminals: list[PtyTerminal] = []
        self._env: dict[str, str] = {}

    def script(self, *replies: dict[str, Any], **settings: Any) -> SageTerminal:
        """A model that gives these replies one after the other."""
        self._env = self.model.serve({"sequence": list(replies), **settings})
        return self

    def rules(self, *replies: dict[str, Any]) -> SageTerminal:
        """A model that gives the first of these replies that fits."""
        self._env = self.model.serve({"replies": list(replies)})
        return self

    def start(
        self, *arguments: str, columns: int = 100, rows: int = 40, fresh: bool = False, **env: str
    ) -> PtyTerminal:
        """`sage` with these arguments; `fresh`: in an interpreter of its own, where signals of the terminal and the
        time of the start matter."""
        variables = {"HOME": str(self.home), **self._env, **env}
        command = [*(warm.fresh if fresh else warm.command)(SAGE), "--model", "anthropic/scripted", *arguments]
        return self._opened(PtyTerminal(command, folder=self.folder, env=variables, columns=columns, rows=rows))

    def start_bare(self) -> PtyTerminal:
        """`sage` without a model and without a key."""
        return self._opened(PtyTerminal(warm.command(SAGE), folder=self.folder, env={"HOME": str(self.home)}))

    def _opened(self, terminal: PtyTerminal) -> PtyTerminal:
        self._terminals.append(terminal)
        return terminal

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.__exit__()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    scripted = ScriptedModel()
    yield scripted
    scripted.close()


@pytest.fixture
def sage(tmp_path: Path, model: ScriptedModel) -> Iterator[SageTerminal]:
    terminal = SageTerminal(tmp_path, model)
    yield terminal
    terminal.close()


def call(name: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    """A reply with one tool call."""
    reply: dict[str, Any] = {"tool_calls": [{"name": name, "arguments": arguments}]}
    return {**reply, "text": text} if text else reply
