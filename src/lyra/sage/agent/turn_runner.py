"""TurnRunner: runs the turns of a session, one at a time, each from its message to its `result` line.

A turn begins with a copy of the files that it may change and ends with a fact that says how it went. What was said and
done in a turn that failed or was interrupted stays in the conversation: every tool call has a result. Decides nothing
about calls; `lyra.agents.headless.headless` asks the agent. `PartialTurn` is what was seen of one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from lyra.agents.declaration.output import Content, content_of
from lyra.agents.session.events import AnyLine, ResultLine, RunUsage
from lyra.agents.session.session import Metrics
from lyra.agents.session.shared import Notice, NoticeSource
from lyra.agents.turn.loop import STATUSES
from lyra.agents.turn.unfinished import repair_messages
from lyra.core.message import Message
from lyra.core.tool import ToolResult
from lyra.errors import Conflict
from lyra.sage.session.record import preview
from lyra.tools.edit_preview import edit_preview

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession


_STOPPED: Final = "the user stopped this call before it was done"
_CUT_OFF: Final = "[stopped by the user]"


class TurnRunner:
    """`partial` is the turn that is under way; None between two turns. `cut_off` is the result of the last turn where
    its reader left before the end."""

    __slots__ = ("_session", "cut_off", "partial")

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self.partial: PartialTurn | None = None
        self.cut_off: ResultLine | None = None

    def require_idle(self, hint: str = "interrupt it first") -> None:
        """Conflict in the middle of a turn."""
        if self.partial is not None:
            raise Conflict("the session is in the middle of a turn", hint=hint)

    async def run(
        self, content: Content, *, beside: str, own: str, only: Sequence[str] | None
    ) -> AsyncGenerator[AnyLine, None]:
        """Yield the lines of one turn, as for `LiveSession.send`."""
        self.require_idle("wait for its result, or interrupt it")
        session = self._session
        budget = session.spending.turn_budget()
        prompt = session.without_keys(_text_of(content))
        partial = await self._begin(prompt)
        last: ResultLine | None = None
        try:
            async with contextlib.aclosing(
                session.headless.lines(content, beside=beside, own=own, budget=budget, only=only)
            ) as lines:
                async for line in lines:
                    partial.see(line)
                    if line["type"] == "result":
                        last = line
                    else:
                        yield self._add_diff(line)
        finally:
            if last is None:  # the reader left, or the program ends
                session.headless.stop()
                last = session.headless.result("interrupted")
            last = self.cut_off = await self._end(partial, last)
        self.cut_off = None
        yield last

    async def _begin(self, prompt: str) -> PartialTurn:
        """Write down that a turn begins. Where that fails there is no turn: the session takes the next message."""
        session = self._session
        start = len(session.messages)
        number = session.spending.turn = session.facts.last_number + 1
        partial = self.partial = PartialTurn(number, start, session.process.metrics.copy())
        self.cut_off = None
        began = {"number": number, "prompt": prompt, "start": start, "model": session.model}
        try:
            await asyncio.to_thread(session.snapshots.begin_turn, number)
            session.fact("session.turn_began", began)
            session.save(prompt=prompt, state="active")
        except BaseException:
            self.partial = None
            raise
        return partial

    def _add_diff(self, line: AnyLine) -> AnyLine:
        """Return the line with the diff of the edit that a question is about."""
        if line["type"] != "interrupt" or "tool" not in line:
            return line
        diff = self._session.without_keys(edit_preview(line["tool"], line["arguments"], self._session.folder))
        return {**line, "diff": diff} if diff else line

    async def _end(self, partial: PartialTurn, result: ResultLine) -> ResultLine:
        """Write down how a turn ended; what was said and done in one that failed stays in the conversation."""
        session, status, text = self._session, str(result["status"]), str(result["text"])
        has_answer = status == "success" or bool(text)  # one that was cut off is an answer, too
        try:
            if not has_answer and session.process.alive:
                # Put the messages of a turn without an answer into the conversation.
                process = self._session.process
                messages = list(process.execution.messages) if process.execution is not None else []
                messages = repair_messages(messages, partial.results, _STOPPED)
                words = partial.text
                if status == "interrupted":
                    words = f"{words}\n\n{_CUT_OFF}" if words else _CUT_OFF
                if words and messages:
                    messages.append(Message("assistant", words))
                await process.revise(partial.start, messages)
        finally:
            self.partial = None
            session.steering.clear()
        if not has_answer:
            shown = partial.text or partial.text_before
            text = shown if status == "interrupted" else summary_of_guard(status, partial)
        metrics = session.process.metrics
        usage, cost_usd = partial.usage(metrics), partial.cost_usd(metrics)
        await asyncio.to_thread(session.snapshots.end_turn)
        changes = session.changes(partial.number)
        if partial.number == session.init_turn and session.equipment is not None and session.mode != "bypass":
            for change in changes:  # a person was asked about each edit of this file
                root, name = os.path.split(change.path)
                if name == "AGENTS.md" and change.after:
                    session.equipment.rules.keep_trust(root, name, change.before or b"", change.after)
        files = [change.name for change in changes]
        ended = {"number": partial.number, "status": status, "answer": preview(text), "files": files}
        spent = {name: usage[name] for name in ("input_tokens", "output_tokens", "cache_read_tokens")}
        session.fact("session.turn_ended", {**ended, **spent, "cost_usd": cost_usd})
        session.index.add_text(session.id, partial.number, text)
        if status == "success" and session.mode == "plan":
            session.keep(plan=text)
        state = "idle" if has_answer else "interrupted" if status == "interrupted" else "failed"
        session.save(state=state, cost_usd=session.process.metrics.cost_usd)
        return {
            **result,
            "text": text,
            "session_id": session.id,
            "turn": partial.number,
            "cost_usd": cost_usd,
            "usage": usage,
            "turns": partial.model_calls(metrics),
        }


def _text_of(content: Content) -> str:
    """Return the words of a message: images are named, not shown."""
    parts = content_of(content)
    if isinstance(parts, str):
        return parts
    return " ".join(str(part.get("text") or f"[{part['type']}]") for part in parts)


class Steering:
    """Messages that a person sends while a turn is under way: the model reads them before it is asked next, after the
    tool calls that run. A NoticeSource in front of that of the tasks. `listeners` are called with the key and the
    text of each message that the model has got; one that it has not got by the end of the turn is dropped here, and
    stays with the face that sent it."""

    __slots__ = ("_count", "_tasks", "_waiting", "listeners")

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str], object]] = []
        self._tasks: NoticeSource | None = None
        self._waiting: dict[str, Notice] = {}
        self._count = 0

    def put_before(self, tasks: NoticeSource | None) -> None:
        self._tasks = tasks

    def add(self, text: str) -> str:
        """Have the model read a message; gives its key."""
        self._count += 1
        key = f"user {self._count}"
        self._waiting[key] = Notice(key, text, by_user=True)
        return key

    def clear(self) -> None:
        self._waiting.clear()

    def waiting(self) -> list[Notice]:
        return [*(self._tasks.waiting() if self._tasks is not None else ()), *self._waiting.values()]

    def on_taken(self, keys: Iterable[str]) -> None:
        others = []
        for key in keys:
            notice = self._waiting.pop(key, None)
            if notice is not None:
                for tell in self.listeners:
                    tell(key, notice.text)
            elif not key.startswith("user "):
                others.append(key)
        if self._tasks is not None:
            self._tasks.on_taken(others)


class PartialTurn:
    """What was seen of a turn that is under way, for the case that it is cut off. `text`: what the model has said since
    its last whole message, and `text_before`: what it said in that one. `results`: of calls, by their id."""

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
        """Return what this turn cost, its helpers included; None where a price is not known."""
        _, _, micro_usd, unpriced = metrics.totals
        _, _, micro_usd_before, unpriced_before = self._before.totals
        return None if unpriced > unpriced_before else (micro_usd - micro_usd_before) / 1_000_000

    def usage(self, metrics: Metrics) -> RunUsage:
        """Return the counts of this turn alone, its helpers' tokens included."""
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
        """Return how often this turn asked the model."""
        return metrics.calls - self._before.calls


def summary_of_guard(status: str, turn: PartialTurn) -> str:
    """Return how a turn without an answer ended and what it had done, in words; empty where nothing is known of it."""
    reason = STATUSES.get(status, "")
    done = ", ".join(f"{name} {count}×" if count > 1 else name for name, count in turn.calls.items())
    if not reason and not done:
        return turn.text
    sentences = [f"Stopped: {reason}." if reason else "Stopped by an error.", f"Calls: {done}." if done else ""]
    return " ".join(sentence for sentence in (*sentences, turn.text) if sentence)
