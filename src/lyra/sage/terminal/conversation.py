"""Conversation: what the person submits, done one after the other; turns, commands, shell commands, questions.

`submit` takes a text at any time; while a turn runs it waits in line. `interrupt` stops what runs and gives the waiting
texts back to the prompt. The screen calls these and draws `live_lines`; it knows nothing of sessions. Slash commands
come from `lyra.sage.commands`; only `/expand` is the terminal's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from lyra.core.clock import Clock, loop_clock
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.sage.terminal.commands_view import run_slash_command
from lyra.sage.terminal.echo import error_lines, expanded_lines, note_lines, prompt_lines
from lyra.sage.terminal.folds import Folds
from lyra.sage.terminal.paper import Paper, Sheet
from lyra.sage.terminal.prompt.attachments import prompt_of
from lyra.sage.terminal.questions.question import Decision, TerminalQuestion
from lyra.sage.terminal.questions.question_view import about_lines, key_lines, why_lines
from lyra.sage.terminal.questions.queue import Questions
from lyra.sage.terminal.shell_view import ShellView
from lyra.sage.terminal.shown_session import ShownSession
from lyra.sage.terminal.text.safe_text import shown
from lyra.sage.terminal.text.styled_lines import MARGIN, Line
from lyra.sage.terminal.turn_view import TurnView

__all__ = ["Conversation", "Submission"]

_LINES_AT_ONCE: Final = 16  # lines of a turn that are shown before the keyboard has its chance
_ALLOWED: Final = {"allow": "allowed once", "always": "allowed from now on", "deny": "denied"}
_WORDS: Final = {"retry": "done again", "skip": "taken as done", "fail": "stopped"}


class Submission:
    """A text from the prompt; `folded` is how it stood there, with marks in place of pasted texts."""

    __slots__ = ("folded", "text")

    def __init__(self, text: str, folded: str = "") -> None:
        self.text = text
        self.folded = folded or text


class Conversation:
    """The state between the prompt and the session."""

    def __init__(self, session: ShownSession, paper: Paper, *, clock: Clock | None = None) -> None:
        self.session = session
        self.clock = clock or loop_clock()
        self.sheet = Sheet(paper)
        self.folds = Folds()
        self.questions = Questions(self.clock)
        self.waiting: deque[Submission] = deque()
        self.view: TurnView | None = None
        self.restore: Callable[[str], None] = lambda _text: None  # gives a text back to the prompt
        self.refresh: Callable[[], None] = lambda: None  # the status may have changed
        self.ended = False
        self._sandbox = ""
        self._beside: list[str] = []  # output of the user's commands, for the next prompt
        self._shell: ShellView | None = None
        self._turn: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._wake = asyncio.Event()
        self._tasks = Tasks()

    @property
    def paper(self) -> Paper:
        return self.sheet.paper

    @property
    def working(self) -> bool:
        return self.view is not None or self._shell is not None

    # ------------------------------------------------------------ what the person does
    def submit(self, submission: Submission) -> None:
        """Take a text of the prompt: an answer to a question, or something to do next."""
        self.questions.text_submitted()
        question = self.questions.current
        if question is not None and question.takes_text:
            self._answer_text(question, submission.text)
            return
        if submission.text.strip().startswith("/expand"):
            self._expand(submission.text)
            return
        if submission.text.strip():
            self.waiting.append(submission)
            self._wake.set()
            self.paper.changed()

    def interrupt(self) -> bool:
        """Stop what runs; False where nothing runs. A second time, the turn is left without waiting for its end."""
        if not self.working:
            return False
        if self.waiting:
            self.restore("\n".join(submission.folded for submission in self.waiting))
            self.waiting.clear()
        if self._shell is not None:
            self._tasks.start(self._shell.stop(), name="stop shell command")
        elif self._is_stopping and self._turn is not None:
            self._turn.cancel()
        else:
            self._is_stopping = True
            self._tasks.start(self._interrupt(), name="interrupt")
        return True

    def end(self) -> None:
        """Leave: the run ends as soon as what runs has stopped."""
        self.ended = True
        self.waiting.clear()
        self.interrupt()
        self._wake.set()

    def press(self, key: str) -> bool:
        """A key for the current question; False where it has no meaning there."""
        question = self.questions.current
        meaning = question.press(key) if question is not None else None
        if question is None or meaning is None:
            return False
        if isinstance(meaning, Decision):
            self._decide(question, meaning)
        elif meaning == "why":
            self.sheet.print("note", why_lines(question, self.sheet.width))
        else:
            self.restore(question.draft)
        self.paper.changed()
        return True

    def back(self) -> bool:
        """Leave the text of an answer; False where there is none."""
        question = self.questions.current
        return question is not None and question.back()

    def expand_all(self) -> None:
        """Show whole what was folded since the last prompt."""
        folds = self.folds.take_unseen()
        if not folds:
            self.note("nothing more is folded; /expand lists what was")
        for fold in folds:
            self.sheet.print("fold", expanded_lines(fold, self.sheet.width, self.paper.facts))

    def cycle_mode(self, modes: tuple[str, ...]) -> None:
        """Switch to the next permission mode."""
        current = self.session.mode
        mode = modes[(modes.index(current) + 1) % len(modes)] if current in modes else modes[0]
        self._tasks.start(self._set_mode(mode), name="mode")

    async def _set_mode(self, mode: str) -> None:
        try:
            await self.session.set_mode(mode)
        except LyraError as error:
            self._show_error(error)
        self.refresh()

    def note(self, text: str, style: str = "faint") -> None:
        self.sheet.print("note", note_lines(text, self.sheet.width, style))

    def _expand(self, text: str) -> None:
        number = text.partition("/expand")[2].strip()
        if not number:
            recent = self.folds.recent(20)
            lines: list[Line] = [[("", f"{' ' * MARGIN}{fold.number:>4}  {shown(fold.title)[:80]}")] for fold in recent]
            self.sheet.print("fold", lines or note_lines("nothing was folded", self.sheet.width))
            return
        fold = self.folds.get(int(number)) if number.isascii() and number.isdecimal() else None
        if fold is None:
            self.note(f"there is no fold {number[:20]}; /expand lists them")
        else:
            self.sheet.print("fold", expanded_lines(fold, self.sheet.width, self.paper.facts))

    # ------------------------------------------------------------ the loop
    async def run(self) -> None:
        """Do what is submitted, until the end."""
        try:
            while not self.ended:
                if not self.waiting:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                await self._perform(self.waiting.popleft())
                self.refresh()
                self.paper.changed()
        finally:
            await self._tasks.close()

    async def _perform(self, submission: Submission) -> None:
        text = submission.text.strip()
        try:
            if text.startswith("!") and text[1:].strip():
                await self._run_shell(text[1:].strip())
            elif text.startswith("/"):
                await self._run_command(text)
            else:
                await self._run_prompt(submission)
        except LyraError as error:
            self._show_error(error)

    async def _run_command(self, text: str) -> None:
        self.sheet.print("user", prompt_lines(text, self.sheet.width, self.paper.facts))
        result = await run_slash_command(self.session, text)
        self.sheet.print("command", result.lines(self.sheet.width, self.paper.facts))
        if result.prompt:
            await self._run_turn(result.prompt, "")
        if result.exit:
            self.end()

    async def _run_shell(self, command: str) -> None:
        self.sheet.print("user", prompt_lines(f"!{command}", self.sheet.width, self.paper.facts))
        self._shell = ShellView(command, self.session.folder, self.sheet, self.folds)
        try:
            outcome = await self._shell.run()
        finally:
            self._shell = None
        self._beside.append(outcome.for_model)

    async def _run_prompt(self, submission: Submission) -> None:
        prompt = prompt_of(submission.text, self.session.folder, folded=submission.folded)
        self.sheet.print("user", prompt_lines(submission.folded, self.sheet.width, self.paper.facts))
        for text in prompt.notes:
            self.note(text)
        beside, self._beside = "\n\n".join(self._beside), []
        await self._run_turn(prompt.content, beside)

    # ------------------------------------------------------------ one turn
    async def _run_turn(self, content: Any, beside: str) -> None:
        self.folds.begin_turn()
        self._is_stopping = False
        view = self.view = TurnView(self.sheet, self.folds, self.clock, folder=self.session.folder)
        self._turn = self._tasks.start(self._show_turn(view, content, beside), name="turn")
        try:
            await asyncio.wait([self._turn])
            if self._turn.cancelled():
                view.status = "interrupted"
            elif (failure := self._turn.exception()) is not None:
                raise failure
        finally:
            self._turn.cancel()
            view.finish()
            self.questions.clear()
            self.view = self._turn = None
        if view.status == "interrupted":
            self.note("interrupted; what was said stays in the conversation", "waits")
        elif view.status not in ("success", ""):
            self.note(f"ended: {shown(view.status)}", "failed")

    async def _show_turn(self, view: TurnView, content: Any, beside: str) -> None:
        count = 0
        async with aclosing(self.session.send(content, beside=beside)) as lines:  # type: ignore[type-var]
            async for line in lines:
                if line.get("type") == "interrupt":
                    self._ask(view, TerminalQuestion(line))
                else:
                    view.take(line)
                    self._sandbox = view.sandbox or self._sandbox
                if line.get("type") == "usage":
                    self.refresh()
                count += 1
                if count % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _interrupt(self) -> None:
        try:
            await self.session.interrupt()
        except LyraError as error:
            self._show_error(error)

    # ------------------------------------------------------------ questions
    def _ask(self, view: TurnView, question: TerminalQuestion) -> None:
        view.pause(question.call_id, waiting=True)
        if self.questions.add(question):
            self._show_question(question)
        self.paper.changed()

    def _show_question(self, question: TerminalQuestion) -> None:
        if self.view is not None:
            self.view.hold()
            if question.diff:
                self.view.diff_was_shown(question.call_id)
        lines = about_lines(
            question,
            self.sheet.width,
            marks=self.paper.facts.marks,
            folds=self.folds,
            folder=self.session.folder,
            sandbox=self._sandbox,
        )
        self.sheet.print("tool" if question.is_permission else "question", lines)

    def _answer_text(self, question: TerminalQuestion, text: str) -> None:
        decision = question.answer(text)
        if decision is None:
            self.note("that is no answer: it is empty, or no JSON object", "waits")
            self.restore(text)
        else:
            self._decide(question, decision)

    def _decide(self, question: TerminalQuestion, decision: Decision) -> None:
        words = _ALLOWED.get(decision.word) or _WORDS.get(decision.word) or "answered"
        words = f"{words}, as edited" if decision.arguments is not None else words
        words = f"{words}: {shown(decision.text)}" if decision.text else words
        style = "removed" if decision.word in ("deny", "fail") else "faint"
        self.sheet.print("tool", note_lines(words, self.sheet.width, style, indent=10))
        if self.view is not None:
            self.view.pause(question.call_id, waiting=False)
        self._tasks.start(self._send_answer(question, decision), name="answer")
        following = self.questions.close()
        if following is not None:
            self._show_question(following)
        self.paper.changed()

    async def _send_answer(self, question: TerminalQuestion, decision: Decision) -> None:
        try:
            await self.session.answer(question.id, decision.word, text=decision.text, arguments=decision.arguments)
        except LyraError as error:
            self._show_error(error)

    def _show_error(self, error: LyraError) -> None:
        self.sheet.print("error", error_lines(error, self.sheet.width))

    # ------------------------------------------------------------ what is live
    def live_lines(self, width: int, rows: int) -> list[Line]:
        """What runs, the current question, and what waits; in at most so many lines."""
        marks = self.paper.facts.marks
        question = self.questions.current
        if question is not None:
            return key_lines(question, width, position=self.questions.position)[:rows]
        hints = ["esc interrupts"] if self.working else []
        if self.waiting and self.working:
            hints.append("1 message waits" if len(self.waiting) == 1 else f"{len(self.waiting)} messages wait")
        lines: list[Line] = []
        if self.view is not None:
            lines = self.view.live_lines(width, rows - 1)
            hints.append("ctrl-o shows everything")
        elif self._shell is not None:
            lines = self._shell.live_lines(width, rows - 1)
        if hints:
            lines = [*lines, [("faint", f"{' ' * MARGIN}{f' {marks.dot} '.join(hints)}")]]
        return lines
