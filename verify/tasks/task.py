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
`kept` names files that a real model must not have changed, such as the tests; `disallowed` are rules of calls that are
denied. `[[helpers]]` are the answers of sub-agents, in order for each `agent`; the last one has no calls:

    [[helpers]]
    agent = "Explore"
    calls = [{ name = "Grep", arguments = { pattern = "def total" } }]

    [[helpers]]
    agent = "Explore"
    text = "It is in shop/basket.py:12."

The mock server fills in `{user}`, `{result}` and `{turn}` in all that the scripted model says: code of a task has other
names in braces.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.sage.extensions.agent_files import BUILT_IN

__all__ = ["FOLDER", "HelperStep", "Step", "Task", "load_tasks"]

FOLDER: Final = Path(__file__).parent / "tasks"


class Step(msgspec.Struct, forbid_unknown_fields=True):
    calls: list[dict[str, Any]]
    text: str = ""
    fails: bool = False


class HelperStep(msgspec.Struct, forbid_unknown_fields=True):
    """An answer of a sub-agent; its calls succeed, and are not among the lines of `sage -p`."""

    agent: str
    text: str = ""
    calls: list[dict[str, Any]] = []


class Task(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    name: str
    prompt: str
    check: str
    before: dict[str, str]
    steps: list[Step]
    after: dict[str, str] = {}
    deleted: list[str] = []
    kept: list[str] = []
    disallowed: list[str] = []
    helpers: list[HelperStep] = []
    answer: str = "Done."
    fails_before: bool = True

    @property
    def script(self) -> dict[str, Any]:
        """The replies of the scripted model: those of sub-agents fit their system prompts alone, so they come first."""
        helpers = [
            {"system": _first_line(helper.agent), "text": helper.text, "tool_calls": helper.calls}
            for helper in self.helpers
        ]
        replies = [{"text": step.text, "tool_calls": step.calls} for step in self.steps]
        return {"sequence": [*helpers, *replies, {"text": self.answer}]}

    @property
    def requests(self) -> int:
        """How often the scripted model is asked."""
        return len(self.helpers) + len(self.steps) + 1

    def tree(self) -> dict[str, str]:
        """The files in the end."""
        return {path: text for path, text in {**self.before, **self.after}.items() if path not in self.deleted}


def _first_line(agent: str) -> str:
    """A regular expression that fits the system prompt of a built-in sub-agent."""
    return "^" + re.escape(BUILT_IN[agent].system.splitlines()[0])


def load_tasks(folder: Path = FOLDER) -> list[Task]:
    tasks = []
    for file in sorted(folder.glob("*.toml")):
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        tasks.append(msgspec.convert({"name": file.stem, **data}, Task))
    return tasks
