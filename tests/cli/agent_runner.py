"""`lyra agent` as a process of its own, with a script as its model: shared by the tests of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests import warm

TYPES: Final = {
    "system",
    "text_delta",
    "thinking_delta",
    "tool_start",
    "tool_end",
    "usage",
    "interrupt",
    "error",
    "result",
}
RESULT: Final = {"type", "status", "text", "session_id", "cost_usd", "usage", "duration_ms", "turns"}


class Runner:
    """`lyra agent` with a script as its model, as a process of its own with nothing on stdin."""

    def __init__(self, lyra: Any) -> None:
        self.lyra = lyra
        self.folder: Path = lyra.folder
        self.env = lyra.env

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def script(self, *replies: dict[str, Any], name: str = "script.json", **settings: Any) -> str:
        """A model that gives these replies, one after the other."""
        path = self.folder.parent / name  # outside: the agent sees the folder as its user has it
        path.write_text(json.dumps({"sequence": replies, **settings}))
        return f"sim/script:{path}"

    def command(self, *args: str, task: str = "do it") -> list[str]:
        return [*self.lyra.command, "agent", "-p", task, *args]

    def __call__(
        self, *args: str, task: str = "do it", stdin: str | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        words = ["agent", "-p", task, *args]
        return warm.run("lyra.cli.main:main", words, cwd=self.folder, env={**self.env, **env}, given=stdin)

    def lines(self, *args: str, **more: Any) -> list[dict[str, Any]]:
        """Every line of `stream-json`, whose shape is that of all of them."""
        done = self(*args, "--output-format", "stream-json", **more)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {line["type"] for line in lines} <= TYPES
        assert lines[0]["type"] == "system", done.stderr
        assert lines[-1]["type"] == "result"
        assert set(lines[-1]) >= RESULT
        assert [line["type"] for line in lines].count("result") == 1
        return lines

    def ended(self, *args: str, **more: Any) -> list[dict[str, Any]]:
        """What came of each tool call."""
        return [line for line in self.lines(*args, **more) if line["type"] == "tool_end"]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


DONE: Final = {"text": "All done."}
