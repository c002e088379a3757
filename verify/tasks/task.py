"""A Task: a small repository, what a user asks for, the calls that solve it, and how the outcome is checked.

One TOML file each:

    prompt = "…"
    check = "python3 -m unittest -q"     # has to succeed afterwards
    fails_before = true                  # and to fail before
    answer = "…"                         # what the scripted model says at the end

    [before]                             # the repository
    "calc.py" = '''…'''

    [after]                              # files that differ in the end; all others are as before
    "calc.py" = '''…'''

    [[steps]]                            # what the scripted model does, answer by answer
    text = "I look first."
    calls = [{ name = "Read", arguments = { file_path = "calc.py" } }]

`deleted` names files that are gone in the end; `fails = true` in a step says that its calls are refused or fail;
`kept` names files that a real model must not have changed, such as the tests.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

__all__ = ["FOLDER", "Step", "Task", "load_tasks"]

FOLDER: Final = Path(__file__).parent / "tasks"


class Step(msgspec.Struct, forbid_unknown_fields=True):
    calls: list[dict[str, Any]]
    text: str = ""
    fails: bool = False


class Task(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    prompt: str
    check: str
    before: dict[str, str]
    steps: list[Step]
    after: dict[str, str] = {}
    deleted: list[str] = []
    kept: list[str] = []
    answer: str = "Done."
    fails_before: bool = True

    @property
    def script(self) -> dict[str, Any]:
        """The replies of the scripted model."""
        replies = [{"text": step.text, "tool_calls": step.calls} for step in self.steps]
        return {"sequence": [*replies, {"text": self.answer}]}

    def tree(self) -> dict[str, str]:
        """The files in the end."""
        return {path: text for path, text in {**self.before, **self.after}.items() if path not in self.deleted}


def load_tasks(folder: Path = FOLDER) -> list[Task]:
    tasks = []
    for file in sorted(folder.glob("*.toml")):
        data = tomllib.loads(file.read_text())
        tasks.append(msgspec.convert({"name": file.stem, **data}, Task))
    return tasks
