"""PartialTurn: what was seen of a turn that is under way, for the case that it is cut off.

The conversation keeps whole messages only. What streamed since the last of them, and the results of calls whose
neighbours were still running, are known from the lines alone. `summary_of_guard` says in words how far a turn came that
a loop guard or an error ended.
"""

from __future__ import annotations

from collections import Counter

from lyra.agents.session.events import AnyLine, RunUsage
from lyra.agents.session.session import Metrics
from lyra.agents.turn.loop import STATUSES
from lyra.core.tool import ToolResult


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

    def see(self, line: AnyLine) -> None:
        if line["type"] == "text_delta":
            self.text += line["delta"]
        elif line["type"] == "usage":  # the message is whole now
            self.text, self.text_before = "", self.text or self.text_before
        elif line["type"] == "error" and line.get("code") == "restart":
            self.text = ""
        elif line["type"] == "tool_start":
            self.calls[line["name"]] += 1
        elif line["type"] == "tool_end":
            self.results[line["id"]] = ToolResult(
                line["id"], line["name"], line["output"], line["is_error"], line.get("error_code", "")
            )

    def cost_usd(self, metrics: Metrics) -> float | None:
        """What this turn cost, its helpers included; None where a price is not known."""
        _, _, micro_usd, unpriced = metrics.totals
        _, _, micro_usd_before, unpriced_before = self._before.totals
        return None if unpriced > unpriced_before else (micro_usd - micro_usd_before) / 1_000_000

    def usage(self, metrics: Metrics) -> RunUsage:
        """The counts of this turn alone, its helpers' tokens included."""
        before, now, earlier = self._before, metrics.totals, self._before.totals
        return {
            "input_tokens": now[0] - earlier[0],
            "output_tokens": now[1] - earlier[1],
            "cache_read_tokens": metrics.cache_read_tokens - before.cache_read_tokens,
            "cache_write_tokens": metrics.cache_write_tokens - before.cache_write_tokens,
            "tool_calls": metrics.tool_calls - before.tool_calls,
            "tool_errors": metrics.tool_errors - before.tool_errors,
        }

    def model_calls(self, metrics: Metrics) -> int:
        """How often this turn asked the model."""
        return metrics.calls - self._before.calls


def summary_of_guard(status: str, turn: PartialTurn) -> str:
    """How a turn without an answer ended and what it had done, in words; empty where nothing is known of it."""
    reason = STATUSES.get(status, "")
    done = ", ".join(f"{name} {count}×" if count > 1 else name for name, count in turn.calls.items())
    if not reason and not done:
        return turn.text
    sentences = [f"Stopped: {reason}." if reason else "Stopped by an error.", f"Calls: {done}." if done else ""]
    return " ".join(sentence for sentence in (*sentences, turn.text) if sentence)
