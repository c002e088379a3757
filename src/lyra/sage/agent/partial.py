"""PartialTurn: what was seen of a turn that is under way, for the case that it is cut off.

The conversation keeps whole messages only. What streamed since the last of them, and the results of calls whose
neighbours were still running, are known from the lines alone. `summary_of_guard` says in words how far a turn came that
a loop guard or an error ended.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from lyra.agents.session.session import Metrics
from lyra.agents.turn.loop import STATUSES
from lyra.core.tool import ToolResult

__all__ = ["PartialTurn", "summary_of_guard"]


class PartialTurn:
    """`text`: what the model has said since its last whole message, and `text_before`: what it said in that one.
    `results`: of calls, by their id."""

    __slots__ = ("_before", "calls", "number", "results", "start", "text", "text_before")

    def __init__(self, number: int, start: int, metrics: Metrics) -> None:
        self.number = number
        self.start = start
        self.text = ""
        self.text_before = ""
        self.results: dict[str, ToolResult] = {}
        self.calls: Counter[str] = Counter()
        self._before = metrics

    def see(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        if kind == "text_delta":
            self.text += line["delta"]
        elif kind == "usage":  # the message is whole now
            self.text, self.text_before = "", self.text or self.text_before
        elif kind == "error" and line.get("code") == "restart":
            self.text = ""
        elif kind == "tool_start":
            self.calls[line["name"]] += 1
        elif kind == "tool_end":
            self.results[line["id"]] = ToolResult(
                line["id"], line["name"], line["output"], line["is_error"], line.get("error_code", "")
            )

    def spent(self, metrics: Metrics) -> dict[str, Any]:
        """The tokens and dollars of this turn, its helpers' included."""
        after, before = metrics.totals, self._before.totals
        return {
            "input_tokens": after[0] - before[0],
            "output_tokens": after[1] - before[1],
            "cost_usd": None if after[3] > before[3] else (after[2] - before[2]) / 1_000_000,
            "cache_read_tokens": metrics.cache_read_tokens - self._before.cache_read_tokens,
        }

    def usage(self, metrics: Metrics) -> dict[str, Any]:
        """The fields of the `result` line that count: of this turn alone."""
        spent, before = self.spent(metrics), self._before
        return {
            "cost_usd": spent.pop("cost_usd"),
            "usage": {
                **spent,
                "cache_write_tokens": metrics.cache_write_tokens - before.cache_write_tokens,
                "tool_calls": metrics.tool_calls - before.tool_calls,
                "tool_errors": metrics.tool_errors - before.tool_errors,
            },
            "turns": metrics.calls - before.calls,
        }


def summary_of_guard(status: str, turn: PartialTurn) -> str:
    """How a turn without an answer ended and what it had done, in words; empty where nothing is known of it."""
    reason = STATUSES.get(status, "")
    done = ", ".join(f"{name} {count}×" if count > 1 else name for name, count in turn.calls.items())
    if not reason and not done:
        return turn.text
    sentences = [f"Stopped: {reason}." if reason else "Stopped by an error.", f"Calls: {done}." if done else ""]
    return " ".join(sentence for sentence in (*sentences, turn.text) if sentence)
