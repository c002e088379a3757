"""The status line: one safe line of a program's output, not more often than a terminal needs it."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.sage.extensions.hooks import Hook, Hooks, StatusLine
from lyra.sage.extensions.hooks.hook import hook_from
from lyra.testing import SimClock
from tests.sage.open_session import Project


async def drawn(text: Any) -> str:
    return await StatusLine(Hooks([Hook("StatusLine", lambda _: text)])).refresh({})


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("main ±2", "main ±2"),
        ("first\nsecond", "first"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("a\x1b[2Jb\x9b2Jc\x07d\u202ee", "abcde"),
        ("\x1bPhidden\x1b\\x\x1b", "x"),
        ("a\tb", "a b"),
        ('{"decision": "deny"}', '{"decision": "deny"}'),
        ("x" * 500, "x" * 200),
        ("", ""),
        (None, ""),
    ],
)
async def test_output_cannot_draw_on_the_terminal(printed: Any, shown: str) -> None:
    assert await drawn(printed) == shown


async def test_it_runs_at_most_every_300_ms() -> None:
    """In between the last text is given."""
    clock, calls = SimClock(100.0), []

    def count(data: dict[str, Any]) -> str:
        calls.append(data["model"])
        return f"{data['model']} {len(calls)}"

    line = StatusLine(Hooks([Hook("StatusLine", count)]), clock=clock)
    assert await line.refresh({"model": "a"}) == "a 1"
    clock.advance(0.2)
    assert await line.refresh({"model": "b"}) == "a 1"
    clock.advance(0.2)
    assert await line.refresh({"model": "b"}) == "b 2"
    assert calls == ["a", "b"]


async def test_a_program_has_one_second_whatever_its_settings_say(project: Project) -> None:
    hook = hook_from({"event": "StatusLine", "command": "cat >> log; echo busy", "timeout_s": 60}, source="user")
    assert hook.timeout_s == 1.0
    assert await StatusLine(Hooks([hook], folder=str(project.folder))).refresh({"model": "m"}) == "busy"
    assert '"model":"m"' in (project.folder / "log").read_text()


async def test_a_failure_leaves_the_text_as_it_was() -> None:
    clock, good = SimClock(0.0), [True]

    def text(_data: dict[str, Any]) -> str:
        if not good[0]:
            raise ValueError("gone")
        return "fine"

    line = StatusLine(Hooks([Hook("StatusLine", text)]), clock=clock)
    assert await line.refresh({}) == "fine"
    good[0] = False
    clock.advance(1)
    assert await line.refresh({}) == "fine"
    assert "gone" in line.warnings[0]


async def test_without_a_hook_there_is_no_text() -> None:
    assert await StatusLine(Hooks([Hook("Stop", lambda _: "x")])).refresh({}) == ""
