"""LeftTurn: a turn that was under way when an earlier program ended, followed to its end for an editor.

It has no stream: what it asks is asked in the editor, also what it or a helper below it asks later, and its answer is
told at its end. Which call a question is about is not known any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from acp import helpers

from lyra.agents.acp.updates import shown_text
from lyra.agents.session.shared import questions_below, stop_turn
from lyra.errors import EffectInDoubt, LyraError

if TYPE_CHECKING:
    from lyra.agents.acp.questions import EditorQuestions
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.events import QuestionLine
    from lyra.kernel.interrupts.interrupt import Interrupt


_EVENTS: Final = ("interrupt.created",)


class LeftTurn:
    """`tell` sends an update about the session to the editor, `questions` puts a question to it."""

    def __init__(
        self, process: AgentProcess[Any], questions: EditorQuestions, tell: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._process = process
        self._questions = questions
        self._tell = tell
        self._news = asyncio.Event()
        self._asked: set[str] = set()
        kernel = process.kernel
        self._stop_hearing = kernel.on_event(lambda _event: self._news.set(), kinds=_EVENTS)
        self._task = kernel.tasks.start(self._follow(), name="lyra-acp-turn")

    def stop(self) -> None:
        """Stop the turn; what it did so far is not in the conversation."""
        stop_turn(self._process.kernel, self._process.pid)

    async def close(self) -> None:
        """Follow it no more; the turn goes on."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask())
                with contextlib.suppress(LyraError):
                    await self._until_ended()
                    answer = next((row.text for row in reversed(self._process.messages) if row.role == "assistant"), "")
                    await self._tell(helpers.update_agent_message_text(shown_text(answer)))
                asking.cancel()
        finally:
            self._stop_hearing()

    async def _until_ended(self) -> None:
        while (current := self._process.current) is not None:
            try:
                await current
                return
            except EffectInDoubt:  # a person is asked, and the turn goes on with the answer
                continue

    async def _ask(self) -> None:
        """Put what the turn waits for to the editor, now and as it comes."""
        kernel = self._process.kernel
        while True:
            self._news.clear()
            for interrupt in questions_below(kernel, self._process.pid):
                if interrupt.id not in self._asked:
                    self._asked.add(interrupt.id)
                    await self._questions.ask(_line_of(interrupt))
            await self._news.wait()


def _line_of(interrupt: Interrupt) -> QuestionLine:
    return {
        "type": "interrupt",
        "id": interrupt.id,
        "kind": interrupt.kind,
        "question": interrupt.question,
        "message": interrupt.message,
    }
