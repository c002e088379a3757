"""Tool calls read as verb, object and figures."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.sage.terminal.tool_lines import describe, figures_of, output_text, seconds_text


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("Read", {"file_path": "/work/src/a.py"}, ("Read", "src/a.py")),
        ("Grep", {"pattern": "json", "path": "src"}, ("Grep", "json in src")),
        ("Bash", {"command": "a\nb\nc"}, ("Bash", "a (+2 lines)")),
        ("MultiEdit", {"file_path": "a.py", "edits": []}, ("Edit", "a.py")),
        ("Task", {"agent": "Explore", "prompt": "find callers"}, ("Explore", "find callers")),
        ("mcp__github__search", {"q": "x"}, ("github", "search q=x")),
        ("weather", {"city": "Oslo", "days": 2}, ("weather", "city=Oslo, days=2")),
        ("Read", {"file_path": "a\x1b[2Jb"}, ("Read", "a⟨U+001B⟩[2Jb")),
        ("TodoWrite", {"todos": [{"content": "x", "status": "in_progress"}]}, ("Todo", "x")),
    ],
)
def test_a_call_has_a_verb_and_an_object(tool: str, arguments: dict[str, Any], words: tuple[str, str]) -> None:
    assert describe(tool, arguments, "/work") == words


@pytest.mark.parametrize(
    ("tool", "arguments", "output", "figures"),
    [
        ("Read", {}, "     1\ta\n     2\tb", "2 lines"),
        ("Grep", {"output_mode": "content"}, "a.py:1:x\na.py:3:x\nb.py:2:x", "3 matches, 2 files"),
        ("Grep", {}, "a.py", "1 file"),
        ("Glob", {}, "no file has such a name", "no match"),
        ("Bash", {}, "...\n==== 212 passed in 13.9s ====\n[exit code 0 · 14.0 s · sandbox x]", "212 passed"),
        ("Bash", {}, "a\nb\n[exit code 0 · 1 s]", "2 lines"),
        ("Bash", {}, "[exit code 0 · 1 s]", "no output"),
        ("Write", {"content": "a\nb\n"}, "wrote a: new, 2 lines", "new, 2 lines"),
        ("other", {}, "x", ""),
    ],
)
def test_a_result_has_figures(tool: str, arguments: dict[str, Any], output: str, figures: str) -> None:
    assert figures_of(tool, arguments, output, is_error=False) == figures


def test_a_failure_says_how() -> None:
    assert (
        figures_of("Bash", {}, "1 failed, 3 passed\n[exit code 1 · 2 s]", is_error=True) == "1 failed, 3 passed, exit 1"
    )
    assert figures_of("Read", {}, "no", is_error=True) == "failed"


def test_outputs_become_text() -> None:
    assert output_text([{"type": "text", "text": "a"}, {"type": "image", "data": "x"}]) == "a\n[image]"
    assert output_text(None) == ""
    assert output_text({"a": 1}) == '{\n  "a": 1\n}'


def test_durations_are_for_people() -> None:
    assert [seconds_text(value) for value in (3.7, 61, 3700)] == ["3 s", "1 min 01 s", "1 h 01 min"]
