"""EditorSession: one conversation of an editor with an agent: its process, and the prompt that is under way.

A prompt's events are told as they come; a question becomes a permission request. A turn that was under way when the
program ended goes on when the session is opened again: its questions are asked anew, and its answer is told at its end.
One prompt at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from acp import helpers, schema

from lyra.agents.acp.questions import EditorQuestions
from lyra.agents.acp.refusals import INVALID_REQUEST, STOP_REASONS, EditorPrompt, invalid, refusal
from lyra.agents.acp.updates import TurnUpdates, message_updates, shown_text
from lyra.agents.session.events import AnswerDone, line_of
from lyra.agents.session.shared import questions_below, stop_turn
from lyra.errors import AgentFailed, EffectInDoubt, LyraError

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.agents.session.events import QuestionLine
    from lyra.agents.session.replies import Pending
    from lyra.kernel.interrupts.interrupt import Interrupt


_INTERNAL_ERROR: Final = -32603
_SAID: Final = ("allow", "always", "deny", "never")


class EditorSession:
    """`client` is the editor's side of the connection."""

    def __init__(self, client: Any, session_id: str, folder: str, process: AgentProcess[Any]) -> None:
        self._client = client
        self.id = session_id
        self.folder = folder
        self._process = process
        self._answer: Pending[Any] | None = None  # of the prompt that is under way
        self._is_prompting = False
        self._is_cancelled = False
        self._left_turn: LeftTurn | None = None
        self._questions = EditorQuestions(client, self, self._tell)
        self._updates = TurnUpdates(self._tell, folder)

    async def _tell(self, update: Any) -> None:
        await self._client.session_update(session_id=self.id, update=update)

    # ------------------------------------------------------------------ opening and closing

    async def begin(self) -> None:
        """Tell the commands, and take up a turn that an earlier program left."""
        commands = [
            schema.AvailableCommand(name=name, description=about, input=None) for name, (about, _) in _COMMANDS.items()
        ]
        await self._tell(helpers.update_available_commands(commands))
        if self._process.current is not None:
            self._left_turn = LeftTurn(self._process, self._questions, self._tell)

    async def replay(self) -> None:
        """Tell the conversation so far."""
        for update in message_updates(self._process.messages, self.folder):
            await self._tell(update)

    async def close(self) -> None:
        """Let go of the session. A turn that is under way goes on; in a durable store, also after the end of the
        program."""
        if self._left_turn is not None:
            await self._left_turn.close()

    # ------------------------------------------------------------------ prompts

    async def prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        if self._is_prompting or self._process.current is not None:
            raise invalid("a prompt is under way in this session", INVALID_REQUEST)
        self._is_prompting, self._is_cancelled = True, False
        try:
            return await self._prompt(prompt)
        finally:
            self._is_prompting = False

    async def _prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        command = _COMMANDS.get(prompt.text.strip().removeprefix("/").partition(" ")[0])
        if command is not None and prompt.text.lstrip().startswith("/"):
            return await self._command(command[1], prompt.text.strip().partition(" ")[2])
        content: Any = prompt.content
        if prompt.beside:
            self._process.kernel.taint.mark(self._process.pid, "text of the editor")
            content = f"{content}\n\n{prompt.beside}" if isinstance(content, str) else [*content, prompt.beside]
        try:
            self._answer = await self._process.stream(content, events=True, wait_for_person=True).begin()
            if self._is_cancelled:  # while the message was put into the store
                self._answer.cancel()
            return await self._run(self._answer)
        except LyraError as error:
            raise refusal(error, _INTERNAL_ERROR) from None
        finally:
            self._answer = None

    async def _run(self, answer: Pending[Any]) -> schema.PromptResponse:
        status = "success"
        try:
            async for event in answer.events():
                line = line_of(event)
                if isinstance(event, AnswerDone):
                    status = event.status
                elif line["type"] == "interrupt":
                    await self._questions.ask(line)
                else:
                    await self._updates.tell_line(line)
        except AgentFailed as error:
            status = str(error.fields.get("status", ""))
            if status not in STOP_REASONS and not self._is_cancelled:
                raise refusal(error, _INTERNAL_ERROR) from None
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
        if self._is_cancelled:
            await answer.leave()
        reason = "cancelled" if self._is_cancelled else STOP_REASONS.get(status, "end_turn")
        return schema.PromptResponse(stop_reason=reason)

    async def cancel(self) -> None:
        """Stop what runs: the prompt that is under way, or the turn that an earlier program left."""
        self._is_cancelled = self._is_prompting
        self._questions.withdraw()
        if self._answer is not None:
            self._answer.cancel()
        elif self._left_turn is not None and not self._is_prompting:
            self._left_turn.stop()

    async def answer(self, interrupt_id: str, decision: str = "", *, text: str = "") -> None:
        """Answer a question of the agent: a word for a call, a text for a question in words."""
        answer: dict[str, Any] = {"decision": decision, "text": text}
        if decision in _SAID:
            answer["approved"] = decision in ("allow", "always")
        await self._process.kernel.resolve_interrupt(interrupt_id, answer)

    # ------------------------------------------------------------------ commands

    async def _command(self, run: Callable[[EditorSession, str], Awaitable[str]], words: str) -> schema.PromptResponse:
        try:
            told = await run(self, words)
        except LyraError as error:
            raise refusal(error) from None
        await self._tell(helpers.update_agent_message_text(shown_text(told)))
        return schema.PromptResponse(stop_reason="end_turn")

    async def _cost(self, _words: str) -> str:
        metrics = self._process.metrics
        cost = "unknown" if metrics.cost_usd is None else f"${metrics.cost_usd:.4f}"
        return f"{metrics.input_tokens} tokens in, {metrics.output_tokens} out; cost {cost}"

    async def _compact(self, words: str) -> str:
        await self._process.compact(words)
        return "The conversation was summed up."


_COMMANDS: Final[dict[str, tuple[str, Callable[[EditorSession, str], Awaitable[str]]]]] = {
    "cost": ("What this conversation has cost", EditorSession._cost),
    "compact": ("Sum up all but the last turn; words after it say what must be kept", EditorSession._compact),
}


# ---------------------------------------------------------------- left turn
# LeftTurn: a turn that was under way when an earlier program ended, followed to its end for an editor.

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
