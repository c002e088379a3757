"""Finds a test that uses each entry without one, and keeps it in `calls.toml`, for a reader to look at.

A candidate uses the entry in its own source, or through what it reaches, and asserts something. Those whose names speak
of it, whose files stand where the code stands, and that are short come first. Only for kinds whose use a
program can tell from a mention: for the others (`_FOLDERS` lacks them) tests are named by hand, in `claims.toml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verify.surface.entries import KINDS, Entry
from verify.surface.evidence import Usage, all_tests, usage_of
from verify.surface.page import CALLS, Surface

__all__ = ["find"]

# Kind → where its tests stand.
_FOLDERS: Final = {
    "command": ("tests/cli/", "tests/mcp/", "tests/testing/"),
    "flag": ("tests/cli/", "tests/mcp/", "tests/testing/"),
    "name": ("tests/",),
    "parameter": ("tests/",),
    "agent": ("tests/agents/",),
    "vega": ("tests/language/", "tests/vega/runtime/", "tests/vega/durable/"),
    "event": ("tests/",),
    "error": ("tests/",),
    "pipeline": ("tests/kernel/pipelines/", "tests/cli/commands/test_pipeline.py"),
}
# How values of a class are called where they are used, beside the words of its own name.
_RECEIVERS: Final = {
    "Context": ("ctx", "context"),
    "InterruptService": ("interrupts",),
    "LifecycleManager": ("lifecycle",),
    "ResourceTracker": ("resources",),
    "ServiceRegistry": ("services",),
}


def find(surface: Surface) -> Path:
    """Write `calls.toml` anew: lines that still hold stay, and entries without a test get the likeliest one."""
    kept = dict(surface.used)
    for wrong in surface.faults():
        kept.pop(":".join(wrong.split(":")[:2]), None)
    kept = {name: test for name, test in kept.items() if name not in surface.shown}
    missing = [entry for entry in surface.without() if entry.kind in _FOLDERS]
    pairs = ((test, usage_of(test, alone=True)) for test in all_tests())
    usages = [(test, usage) for test, usage in pairs if usage is not None]
    kept.update({entry.id: test for entry in missing if (test := _likeliest(entry, usages))})
    lines = ["# Tests that use an entry and assert something; see `candidates`."]
    for kind in KINDS:
        rows = [entry.id for entry in surface.entries if entry.kind == kind and entry.id in kept]
        lines += ["", f"[{kind}]", *(f"{json.dumps(row.partition(':')[2])} = {json.dumps(kept[row])}" for row in rows)]
    CALLS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return CALLS


def _likeliest(entry: Entry, usages: list[tuple[str, Usage]]) -> str:
    tests = [(test, usage) for test, usage in usages if test.startswith(_FOLDERS[entry.kind])]
    fitting = [(test, usage) for test, usage in tests if _fits(entry, test, usage)]
    return min(fitting, key=lambda pair: (-_score(entry, *pair), pair[0]))[0] if fitting else ""


def _fits(entry: Entry, test: str, usage: Usage) -> bool:
    whole = usage_of(test)
    if whole is None or not whole.asserts or not whole.uses(entry):
        return False
    if entry.kind == "flag":
        return any(entry.words[-1] in line for line in usage.lines)
    if entry.owner and not any(hint in whole.words for hint in _hints(entry.owner)):
        return False
    return usage.uses(entry) or _near(entry, test) > 1


def _hints(owner: str) -> Iterator[str]:
    """How a value of a class is called where it is used: `ToolRegistry`, `tool_registry`, `registry`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z]*", owner)
    yield owner
    yield "_".join(words).lower()
    yield words[-1].lower()
    yield from _RECEIVERS.get(owner, ())


def _near(entry: Entry, test: str) -> int:
    """How many folders and files on the way to the code and to the test have the same name."""
    places = [part.removeprefix("test_").removesuffix(".py") for part in test.partition("::")[0].split("/")]
    return sum(part in places for part in entry.home.split(".") if part != "lyra")


def _score(entry: Entry, test: str, usage: Usage) -> float:
    name = test.partition("::")[2]
    spoken = sum(
        part in name for word in entry.words[-2:] for part in re.split(r"[._-]", word.lower()) if len(part) > 2
    )
    on_one_line = entry.kind == "flag" and any(set(entry.words) <= set(line) for line in usage.lines)
    return 3 * _near(entry, test) + 4 * spoken + 6 * on_one_line + 2 * usage.uses(entry) - usage.text.count("\n") / 40
