"""What the tests of hooks share: a headless run in a project, with hooks of the user's file and scripted replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.sage.extensions.hooks import Hook, Hooks
from tests.sage.open_session import Project, call

__all__ = ["Run", "answering", "call", "headless", "records", "seen", "user_file"]


_RUN_S = 30.0  # a run that waits for something which never comes


def user_file(project: Project, text: str) -> None:
    """Write the user's own `lyra.toml`."""
    folder = project.home / ".config" / "lyra"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lyra.toml").write_text(text)


def records(project: Project, name: str = "log.jsonl") -> list[dict[str, Any]]:
    """What hooks with `cat >> log.jsonl` were given."""
    path = project.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Run:
    """A headless run: the lines of each task, and the messages of its conversation."""

    def __init__(self, headless: Headless) -> None:
        self.headless = headless
        self.lines: list[Any] = []

    async def ask(self, task: str = "go") -> Any:
        """The result line of a task."""
        self.lines.clear()
        return (await self.headless.ask(task, self.lines.append)).result

    @property
    def notices(self) -> list[tuple[str, str]]:
        return [(line["level"], line["text"]) for line in self.lines if line["type"] == "notice"]

    def outputs(self) -> list[str]:
        """The results of tools, as the model was told them."""
        assert self.headless.process is not None
        messages = self.headless.process.messages
        return [str(result.output) for message in messages for result in message.tool_results]

    def texts(self, role: str) -> list[str]:
        assert self.headless.process is not None
        return [message.text for message in self.headless.process.messages if message.role == role]


@asynccontextmanager
async def headless(
    project: Project, *replies: dict[str, Any], hooks: Hooks | list[Hook] | None = None, **options: Any
) -> AsyncIterator[Run]:
    """A run with these replies of the model; without `hooks`, with those of the settings files."""
    config = Config.load(project.folder, trust=options.get("trusted") or None)
    folder = str(project.folder)
    if not isinstance(hooks, Hooks):
        hooks = Hooks.from_config(config, folder) if hooks is None else Hooks(hooks, folder=folder)
    model = project.script(*replies) if replies else "sim/echo"
    chosen = HeadlessOptions(model=model, folder=folder, hooks=hooks, **options)
    async with asyncio.timeout(_RUN_S), Headless(chosen, config) as run:
        yield Run(run)


def answering(event: str, answer: Any, **options: Any) -> Hook:
    """A hook of the program that always gives this answer."""
    return Hook(event, lambda _data: answer, **options)


def seen(event: str, log: list[dict[str, Any]], answer: Callable[[dict[str, Any]], Any] | None = None) -> Hook:
    """A hook of the program that keeps what it is given."""

    def note(data: dict[str, Any]) -> Any:
        log.append(data)
        return None if answer is None else answer(data)

    return Hook(event, note)
