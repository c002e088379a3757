"""The sessions of which the documentation has pictures: what is typed, what the scripted model answers, when a picture
is taken.

Each session runs the real `sage` in a home and a folder of its own; its model is a mock server over HTTP. The pictures
have no times. Costs and token counts are what the session showed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lyra.testing.mock import MockServer
from verify.screenshots.recorded_terminal import RecordedTerminal
from verify.screenshots.screen_svg import draw_rows

__all__ = ["FOLDER", "SCENES", "record", "write"]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
_SOURCE: Final = Path(__file__).parents[2] / "src"
_SAGE: Final = [sys.executable, "-c", "import sys; from lyra.cli.main import sage; sys.exit(sage())"]
_MODEL: Final = ("--model", "anthropic/claude-sonnet-4-5")
_COLUMNS: Final = 100
_ROWS: Final = 34
_CART: Final = """\
def total(prices, discount=0):
    amount = 0
    for price in prices:
        amount += price
    return amount - discount
"""
_PROJECT_FILE: Final = """\
[permissions]
allow = ["Bash(make test)"]
"""

Pictures = dict[str, str]
Scene = Callable[["Stage"], None]


class Stage:
    """A home, a folder with a small project, and the pictures that were taken."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.home, self.folder = root / "home", root / "shop"
        self.home.mkdir()
        self.folder.mkdir()
        self._shown_as = {str(self.folder.resolve()): "/home/you/shop"}
        self._env = env
        self.pictures: Pictures = {}

    def add_project(self) -> None:
        """A repository with one file, and a user who has seen the first screen before."""
        data = self.home / ".local/share/lyra"
        data.mkdir(parents=True, mode=0o700)
        data.chmod(0o700)
        (data / "sage-history").write_text('"an earlier prompt"\n')
        (self.folder / "cart.py").write_text(_CART)
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Cart"]):
            subprocess.run(["git", "-C", str(self.folder), *words], check=True, env=_git_env(self.home))

    @contextmanager
    def sage(self, *arguments: str) -> Iterator[RecordedTerminal]:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
        env = {
            **kept,
            "TERM": "xterm-256color",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.home),
            "PYTHONPATH": str(_SOURCE),
            **self._env,
        }
        command = [*_SAGE, *arguments]
        with RecordedTerminal(
            command, folder=self.folder, env=env, columns=_COLUMNS, rows=_ROWS, shown_as=self._shown_as
        ) as terminal:
            yield terminal

    def take(self, name: str, title: str, terminal: RecordedTerminal, *, since: str = "") -> None:
        """Keep the screen as it is now, from the first row that has `since`."""
        rows = terminal.rows()
        first = next(number for number, row in enumerate(rows) if since in "".join(cell.text for cell in row))
        self.pictures[f"sage-{name}.svg"] = draw_rows(title, rows[first:], terminal.columns)


def _git_env(home: Path) -> dict[str, str]:
    person = {"NAME": "You", "EMAIL": "you@example.com"}
    names = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **names}


def _call(name: str, text: str = "", **arguments: Any) -> dict[str, Any]:
    return {"text": text, "tool_calls": [{"name": name, "arguments": arguments}]}


def _first_run(stage: Stage) -> None:
    """No model and no key; then the simulated one."""
    with stage.sage() as terminal:
        terminal.wait_for("enter  leave")
        stage.take("no-key", "sage without a model names the variables and offers the simulated model", terminal)
        terminal.send("s\r").wait_for("Three things to try").wait_for("^ sage  shop .*echo")
        terminal.send("hello\r").wait_for("^  hello")
        title = "The first session: model, folder, what Sage asks before, three things to try"
        stage.take("welcome", title, terminal, since="Sage works with you")
        terminal.send("\x04").wait_for_end()


def _trust(stage: Stage) -> None:
    (stage.folder / "lyra.toml").write_text(_PROJECT_FILE)
    (stage.folder / "AGENTS.md").write_text("Amounts are whole cents.\nRun make test after a change.\n")
    with stage.sage("--model", "sim/echo") as terminal:
        terminal.wait_for(r"Trust these files\?")
        stage.take("trust", "sage shows what the files of a folder ask for, and asks whether to trust them", terminal)


_READ: Final = _call("Read", "I'll look at how the total is made.", file_path="cart.py")
_EDIT: Final = _call(
    "Edit",
    "A discount larger than the sum makes the total negative.",
    file_path="cart.py",
    old_string="    return amount - discount\n",
    new_string="    return max(0, amount - discount)\n",
)
_CHANGED: Final = {"text": "The total is **never below zero** now. `total([5], discount=9)` is `0`."}


def _change(stage: Stage) -> None:
    """An edit with its question, what came of it, and its undo; then the session again."""
    stage.add_project()
    with stage.sage(*_MODEL) as terminal:
        terminal.wait_for("^ sage  shop  main .*context")
        terminal.send("can the total in @cart.py be negative? fix it\r").wait_for("Allow this edit")
        stage.take("edit", "A question before an edit: its diff, and the keys y, a, n, e and ?", terminal)
        terminal.send("y").wait_for("never below zero").wait_for("main ±1 .*context")
        stage.take("answer", "The edit was made, and the answer stands below it", terminal)
        terminal.send("/undo\r").wait_for("turn 1").wait_for("^ sage  shop  main  ")
        stage.take("undo", "/undo restores the file and the conversation", terminal)
        terminal.send("\x04").wait_for_end()


def _plan(stage: Stage) -> None:
    stage.add_project()
    with stage.sage(*_MODEL) as terminal:
        terminal.wait_for("^ sage  shop  main .*context")
        terminal.send("\x1b[Z").wait_for("^ sage  accept-edits ")
        terminal.send("\x1b[Z").wait_for("^ sage  plan ")
        terminal.send("add a tax to the total\r").wait_for("leave plan mode").wait_for("^ sage  plan .*context")
        stage.take("plan", "In plan mode an edit is denied, and the agent gives a plan", terminal)
        terminal.send("\x04").wait_for_end()
    with stage.sage("-c", *_MODEL) as terminal:
        terminal.wait_for("leave plan mode").wait_for("^ sage  plan  shop  main .*context")
        stage.take("continue", "sage -c shows the last exchange of the newest session and goes on with it", terminal)


_PLAN: Final = {
    "text": """\
**Plan**

1. Give `total` a parameter `tax`, 0 unless said.
2. Multiply after the discount, and round to cents.
3. Add a test for both.

Say go, and leave plan mode with shift-tab."""
}


def _agents(stage: Stage) -> None:
    stage.add_project()
    with stage.sage(*_MODEL) as terminal:
        terminal.wait_for("^ sage  shop  main .*context")
        terminal.send("who uses the cart, and is it tested?\r").wait_for("No test touches").wait_for(
            "^ sage  shop .*context"
        )
        stage.take("agents", "Two sub-agents have worked side by side, each with its tools, tokens and cost", terminal)


_TASKS: Final = {
    "text": "I'll have both looked at.",
    "tool_calls": [
        {
            "name": "Task",
            "arguments": {"description": "find callers of total()", "prompt": "callers", "subagent_type": "Explore"},
        },
        {
            "name": "Task",
            "arguments": {"description": "look for untested cases", "prompt": "cases", "subagent_type": "Review"},
        },
    ],
}
_AGENT_REPLIES: Final = [
    {"user": "^who", **_TASKS},
    {"user": "^callers", "text": "None but cart.py itself."},
    {"user": "^cases", "text": "There is no test."},
    {"text": "Nothing calls `total()` yet. **No test touches it.**"},
]

SCENES: Final[dict[Scene, dict[str, Any]]] = {
    _first_run: {},
    _trust: {},
    _change: {"sequence": [_READ, _EDIT, _CHANGED]},
    _plan: {"sequence": [_READ, {**_EDIT, "text": "I'd begin here."}, _PLAN]},
    _agents: {"replies": _AGENT_REPLIES},
}


async def _record(scene: Scene, script: dict[str, Any]) -> Pictures:
    root = Path(tempfile.mkdtemp(prefix="s"))
    try:
        if not script:
            stage = Stage(root, {})
            await asyncio.to_thread(scene, stage)
            return stage.pictures
        async with MockServer(script) as server:
            stage = Stage(root, server.env)
            await asyncio.to_thread(scene, stage)
            return stage.pictures
    finally:
        shutil.rmtree(root, ignore_errors=True)


def record() -> Pictures:
    """The pictures of all sessions, by the names of their files."""
    pictures: Pictures = {}
    for scene, script in SCENES.items():
        pictures |= asyncio.run(_record(scene, script))
    return pictures


def write() -> list[str]:
    """Write the pictures; the names of their files."""
    pictures = record()
    for name, picture in pictures.items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
    return sorted(pictures)
