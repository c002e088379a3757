"""A turn on the screen: what is finished is printed in order, what is not is live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lyra.sage.terminal.echo import Folds, Sheet
from lyra.sage.terminal.text.styled_lines import strip_style
from lyra.sage.terminal.turn_view import TurnView
from lyra.testing import SimClock
from tests.sage.terminal.paper_list import PaperList

# The fields that a line of a type always has, where a test does not say them.
_USUAL: dict[str, dict[str, Any]] = {
    "tool_start": {"arguments": {}},
    "tool_progress": {"name": "", "fraction": None},
    "tool_end": {"output": None, "is_error": False},
    "usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0.0},
    "notice": {"level": "info"},
}


class Shown:
    """A turn view with its paper, folds and clock."""

    def __init__(self, folder: str = "", output: str = "text", width: int = 80) -> None:
        self.paper = PaperList(width)
        self.folds = Folds()
        self.clock = SimClock()
        self.view = TurnView(Sheet(self.paper), self.folds, self.clock, folder=folder, output=output)

    def take(self, kind: str, **fields: Any) -> Shown:
        line: Any = {"type": kind, **_USUAL.get(kind, {}), **fields}
        self.view.take(line)
        return self

    @property
    def printed(self) -> list[str]:
        return self.paper.lines

    @property
    def live(self) -> list[str]:
        return [strip_style(line).rstrip() for line in self.view.live_lines(self.paper.width, 20)]


def test_lines_are_printed_in_the_order_they_came() -> None:
    """Text that is not complete is printed before the call that follows it; groups have a blank line between."""
    shown = Shown()
    shown.take("text_delta", delta="I look.").take("tool_start", id="1", name="Read", arguments={"file_path": "a"})
    assert shown.printed == ["  I look."]
    shown.take("tool_end", id="1", name="Read", output="     1\tx").take("text_delta", delta="Done.")
    shown.take("result", status="success")
    assert [line for line in shown.printed if line] == ["  I look.", f"  Read    a{'1 line':>69}", "  Done."]
    assert shown.printed[1] == shown.printed[3] == ""
    assert shown.view.status == "success"


def test_an_error_stands_below_the_text_before_it() -> None:
    shown = Shown().take("text_delta", delta="I begin").take("error", code="x", message="it broke", hint="mend it")
    assert [line for line in shown.printed if line] == ["  I begin", "  it broke", "  hint: mend it"]
    assert shown.view.has_failed


def test_the_tail_of_the_text_is_live_and_blocks_are_printed() -> None:
    """A complete paragraph leaves the live block for the scrollback."""
    shown = Shown().take("text_delta", delta="First.\n\nSecond begi")
    assert shown.printed == ["  First."]
    assert "  Second begi" in shown.live


def test_a_running_call_is_live_with_its_time_and_its_last_output() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.take("tool_progress", id="1", name="Bash", text="a\nb\nc\nd\x1b[2J\n")
    shown.clock.advance(12)
    assert shown.live[0].startswith("  Bash    make")
    assert "12 s" in shown.live[0]
    assert [line.strip() for line in shown.live[1:]] == ["b", "c", "d"]
    shown.take("tool_end", id="1", name="Bash", output="212 passed in 14 s\n[exit code 0 · 12 s]")
    assert shown.printed[-2].endswith("212 passed     12 s")
    assert shown.printed[-1] == "          212 passed in 14 s"


def test_the_figures_of_a_sub_agent_stand_in_its_line() -> None:
    shown = Shown().take("tool_start", id="1", name="Task", arguments={"subagent_type": "Explore", "prompt": "look"})
    shown.take("tool_progress", id="1", name="Task", text="3 tools, 4100 tokens, $0.01")
    assert "  Explore look" in shown.live[0]
    assert "3 tools, 4100 tokens, $0.01" in shown.live[0]


def test_the_time_of_a_call_stands_still_while_a_person_is_asked() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.clock.advance(2)
    shown.view.pause("1", waiting=True)
    shown.clock.advance(60)
    assert "waits for you" in shown.live[0]
    shown.view.pause("1", waiting=False)
    shown.clock.advance(3)
    assert "  5 s" in shown.live[0]


def test_thinking_is_one_line_and_folded() -> None:
    shown = Shown().take("thinking_delta", delta="Let me ")
    shown.clock.advance(3)
    assert "Thinks" in shown.live[0]
    shown.take("thinking_delta", delta="see.").take("text_delta", delta="Yes.").view.finish()
    assert [line for line in shown.printed if line] == ["  thought for 3 s", "  Yes."]
    assert [fold.text for fold in shown.folds.take_unseen()] == ["Let me see."]


def test_a_failed_call_shows_its_last_lines_and_folds_the_rest() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    output = "\n".join(f"line {number}" for number in range(20)) + "\n[exit code 2 · 1 s]"
    shown.take("tool_end", id="1", name="Bash", output=output, is_error=True, error_code="exec_failed")
    assert shown.printed[0].endswith("exit 2")
    assert shown.printed[1].strip() == "… 15 lines before · /expand 1"
    assert shown.printed[-1].strip() == "[exit code 2 · 1 s]"


def test_what_the_person_denied_is_not_told_twice() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.view.denial_was_shown("1")
    shown.take("tool_end", id="1", name="Bash", output="no", is_error=True, error_code="permission_denied")
    assert shown.printed == []


def test_a_call_that_was_cut_off_says_so() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.take("result", status="interrupted")
    assert shown.printed[0].endswith("stopped")
    assert shown.view.status == "interrupted"


def test_an_edit_shows_its_diff_once(tmp_path: Path) -> None:
    """Without a question with the result; with one, the diff stood above already."""
    (tmp_path / "a.py").write_text("x = 1\n")
    edit = {"file_path": "a.py", "old_string": "1", "new_string": "2"}
    shown = Shown(str(tmp_path)).take("tool_start", id="1", name="Edit", arguments=edit)
    shown.take("tool_end", id="1", name="Edit", output="edited")
    assert shown.printed[0].endswith("+1  −1")
    assert "1 + x = 2" in shown.printed[-1]
    asked = Shown(str(tmp_path)).take("tool_start", id="1", name="Edit", arguments=edit)
    asked.view.diff_was_shown("1")
    asked.take("tool_end", id="1", name="Edit", output="edited")
    assert asked.printed == []


async def test_a_long_block_is_laid_out_before_it_is_printed() -> None:
    """`prepare` does the slow part beside the loop; what is printed is the same."""
    code = "```python\n" + "\n".join(f"value_{number} = {number}" for number in range(80)) + "\n"
    shown, plain = Shown(), Shown()
    for delta in (code, "```\n"):
        await shown.view.prepare({"type": "text_delta", "delta": delta})
        shown.take("text_delta", delta=delta)
        plain.take("text_delta", delta=delta)
    assert shown.printed == plain.printed
    assert len(shown.printed) == 80


def test_live_lines_fit_their_rows() -> None:
    """However much is not complete, the prompt keeps its place."""
    shown = Shown().take("text_delta", delta="\n".join(f"- item {number}" for number in range(60)))
    assert len(shown.view.live_lines(80, 6)) <= 6


def test_the_cost_of_a_turn_is_unknown_once_a_price_is() -> None:
    """It is not shown as if the call had cost nothing."""
    shown = Shown().take("usage", input_tokens=1_000, output_tokens=100, cost_usd=0.25)
    assert "tokens, $0.25" in shown.live[-1]
    shown.take("usage", input_tokens=1_000, output_tokens=100, cost_usd=None)
    assert "tokens, ?  " in shown.live[-1]


def test_the_last_lines_of_a_command_are_shown_and_the_rest_is_folded() -> None:
    """Four of them, without the program's own note; of one that fits nothing is folded; `compact` shows none."""
    output = "".join(f"line {number}\n" for number in range(1, 11))
    for mode, below in (
        ("text", ["… 6 lines before · /expand 1", "line 7", "line 8", "line 9", "line 10"]),
        ("compact", []),
    ):
        shown = Shown(output=mode).take("tool_start", id="1", name="Bash", arguments={"command": "make"})
        shown.take("tool_end", id="1", name="Bash", output=f"{output}[exit code 0 · 1 s]")
        assert [line.strip() for line in shown.printed[-1 - len(below) :][1:]] == below
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.take("tool_end", id="1", name="Bash", output="one\n\n[exit code 0 · 1 s]")
    assert shown.printed[-1] == "          one"
    assert shown.folds.take_unseen() == []


def test_one_line_that_is_folded_is_one() -> None:
    shown = Shown().take("tool_start", id="1", name="Bash", arguments={"command": "make"})
    shown.take("tool_end", id="1", name="Bash", output="".join(f"line {n}\n" for n in range(5)))
    assert any("… 1 line before" in line for line in shown.printed)
