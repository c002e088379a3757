"""`sage` as a process of its own, with a script as its model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cli.agent_runner import RESULT, TYPES

TARGET = "lyra.cli.main:sage"


class Sage:
    """`sage(...)` runs the command to its end; `sage.json(...)` wants success and one JSON document."""

    def __init__(self, lyra: Any) -> None:
        self.folder: Path = lyra.folder
        self.home = Path(lyra.env["HOME"])
        self.env: dict[str, str] = lyra.env

    def __call__(self, *args: str, stdin: Any = None, cwd: Any = None, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.run(TARGET, args, cwd=cwd or self.folder, env={**self.env, **env}, given=stdin)

    def json(self, *args: str, **more: Any) -> Any:
        done = self(*args, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ask(self, task: str, *args: str, **more: Any) -> dict[str, Any]:
        """The result of one printed task."""
        model = () if "--model" in args else ("--model", "sim/echo")
        result: dict[str, Any] = self.json("-p", task, *model, "--output-format", "json", *args, **more)
        assert set(result) >= RESULT
        return result

    def lines(self, *args: str, **more: Any) -> list[dict[str, Any]]:
        """Every line of `stream-json`."""
        done = self(*args, **more)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {line["type"] for line in lines} <= {*TYPES, "tool_progress", "notice"}
        assert lines[0]["type"] == "system", done.stderr
        assert lines[-1]["type"] == "result"
        return lines

    def script(self, *replies: dict[str, Any], name: str = "script.json", **settings: Any) -> str:
        path = self.folder.parent / name
        path.write_text(json.dumps({"sequence": replies, **settings}))
        return f"sim/script:{path}"

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *args: str) -> subprocess.Popen[str]:
        """A process whose input stays open."""
        return subprocess.Popen(
            [*warm.command(TARGET), *args],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def sage(lyra: Any) -> Sage:
    return Sage(lyra)
