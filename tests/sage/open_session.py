"""A session in a project, a home and a data folder of its own, with a scripted model: shared by tests of Sage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.sage.agent.live import LiveSession, SessionStart

__all__ = ["PRICE", "Project", "call", "say"]

PRICE = {"input_usd_per_mtok": 10, "output_usd_per_mtok": 10}  # a thousand tokens are a cent


class Project:
    """`open(*replies)` is a session whose model gives these replies; without any it repeats what it is told. Where a
    model fails it is asked three times, without a pause: `patience` has the settings."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "work"
        self.data = folder / "sessions"
        self.home = folder / "home"
        self.scripts = 0
        self.patience: tuple[str, ...] = ("retry.max_attempts=3", "retry.initial_s=0.001")
        for path in (self.folder, self.home):
            path.mkdir()
        monkeypatch.setenv("HOME", str(self.home))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(self.folder)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def script(self, *replies: dict[str, Any], **settings: Any) -> str:
        self.scripts += 1
        path = self.folder.parent / f"script{self.scripts}.json"
        path.write_text(json.dumps({"sequence": replies, **settings}))
        return f"sim/script:{path}"

    def open(
        self,
        *replies: dict[str, Any],
        model: str = "",
        options: dict[str, Any] | None = None,
        flags: tuple[str, ...] = (),
        chosen: str = "",
        **start: Any,
    ) -> LiveSession:
        name = model or (self.script(*replies) if replies else "sim/echo")
        given = HeadlessOptions(model=name, folder=str(self.folder), **(options or {}))
        config = Config.load(self.folder, flags=(*self.patience, *flags))
        return LiveSession(given, config, start=SessionStart(root=str(self.data), model=chosen, **start))


async def say(session: LiveSession, text: Any, **more: Any) -> list[Any]:
    return [line async for line in session.send(text, **more)]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}
