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
`kept` names files that a real model must not have changed, such as the tests; `allowed` and `disallowed` are rules of
calls. `setup` are commands for `sh` that run in the folder first, with a home folder of the task's own, and `env` are
variables of Sage and of the check, in which `~` is that home. `[[helpers]]` are the answers of sub-agents, in order for
each `agent`, or to the one whose `prompt` has this text; the last one has no calls:

    [[helpers]]
    agent = "Explore"
    calls = [{ name = "Grep", arguments = { pattern = "def total" } }]

    [[helpers]]
    agent = "Explore"
    text = "It is in shop/basket.py:12."

A step may meet trouble: `error` in place of its answer, as in a script (`{ kind = "rate_limit", retry_after_s = 60,
attempts = 1 }`), or `is_cut = true`, an answer that ends at the limit of tokens, within its last call if it has one.
`times` gives it again, and `first_s` is how long it takes. A long text is
`{ first = "n\\n", line = "{n}\\n", count = 900 }`.

The mock server fills in `{user}`, `{result}` and `{turn}` in all that the scripted model says: code of a task has other
names in braces.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.sage.agent.tasks.sub_agents import GENERAL
from lyra.sage.extensions.agent_files import BUILT_IN

__all__ = ["FOLDER", "HelperStep", "Step", "Task", "load_tasks"]

FOLDER: Final = Path(__file__).parent / "tasks"


class Step(msgspec.Struct, forbid_unknown_fields=True):
    calls: list[dict[str, Any]] = []
    text: str = ""
    fails: bool = False
    is_cut: bool = False
    error: dict[str, Any] | None = None
    times: int = 1
    first_s: float = 0.0

    @property
    def retries(self) -> int:
        return self.error["attempts"] if self.error else 0

    @property
    def wait_s(self) -> float:
        """How long the vendor wants to be left alone."""
        return self.retries * self.error.get("retry_after_s", 0.0) if self.error else 0.0

    @property
    def reply(self) -> dict[str, Any]:
        """The answer as the mock server's script has it."""
        stop = {"stop_reason": "max_tokens"} if self.is_cut else {}
        plain = {"text": self.text, "tool_calls": self.calls, "error": self.error, "first_s": self.first_s}
        return {**plain, "times": self.times, **stop}


class HelperStep(msgspec.Struct, forbid_unknown_fields=True):
    """An answer of a sub-agent; its calls succeed, and are not among the lines of `sage -p`."""

    agent: str
    prompt: str = ""
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
    setup: str = ""
    env: dict[str, str] = {}
    allowed: list[str] = []
    disallowed: list[str] = []
    helpers: list[HelperStep] = []
    answer: str = "Done."
    fails_before: bool = True

    @property
    def script(self) -> dict[str, Any]:
        """The replies of the scripted model: those of sub-agents fit their system prompts alone, so they come first."""
        helpers = [
            {
                "system": _first_line(helper.agent),
                "text": helper.text,
                "tool_calls": helper.calls,
                **({"contains": helper.prompt} if helper.prompt else {}),
            }
            for helper in self.helpers
        ]
        return {"sequence": [*helpers, *(step.reply for step in self.steps), {"text": self.answer}]}

    @property
    def requests(self) -> int:
        """How often the scripted model is asked."""
        return len(self.helpers) + sum(step.times + step.retries for step in self.steps) + 1

    @property
    def retries(self) -> int:
        return sum(step.retries for step in self.steps)

    @property
    def wait_s(self) -> float:
        """How long the task takes at least, because a vendor wants to be left alone."""
        return sum(step.wait_s for step in self.steps)

    def tree(self) -> dict[str, str]:
        """The files in the end."""
        return {path: text for path, text in {**self.before, **self.after}.items() if path not in self.deleted}


def _first_line(agent: str) -> str:
    """A regular expression that fits the system prompt of a built-in sub-agent."""
    return "^" + re.escape({**BUILT_IN, GENERAL.name: GENERAL}[agent].system.splitlines()[0])


def load_tasks(folder: Path = FOLDER) -> list[Task]:
    tasks = []
    for file in sorted(folder.glob("*.toml")):
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        tasks.append(msgspec.convert({"name": file.stem, **_write_out(data)}, Task))
    return tasks


def _write_out(value: Any) -> Any:
    """Replace each `{ line, count }` in what a file says by the text that it stands for."""
    if isinstance(value, list):
        return [_write_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    if {"line", "count"} <= value.keys():
        lines = (value["line"].replace("{n}", str(number)) for number in range(1, value["count"] + 1))
        return "".join((value.get("first", ""), *lines))
    return {key: _write_out(item) for key, item in value.items()}
