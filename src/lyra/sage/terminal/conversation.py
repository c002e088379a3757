"""Conversation: what the person submits, done one after the other; turns, commands, shell commands, questions.

`submit` takes a text at any time. While a turn runs, a message waits: for the model's next step, or else for the end of
the turn; a command that only reads is answered at once. `interrupt` stops what runs and gives the waiting texts back to
the prompt. The screen calls these and draws `live_lines`; it knows nothing of sessions. Slash commands
come from `lyra.sage.commands`; only `/expand` is the terminal's own. A `!command` of the user runs in their own shell
with their own rights; its output is shown as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast

from lyra.agents.session.events import Retrying, RetryLine
from lyra.core.clock import Clock, loop_clock
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.attachments import attach
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.terminal.commands_view import ShownResult, is_command, only_reads, run_slash_command
from lyra.sage.terminal.echo import (
    Folds,
    Paper,
    Sheet,
    count_lines,
    error_lines,
    note_lines,
    prompt_lines,
    render_fold,
    task_words,
)
from lyra.sage.terminal.picker import Picker
from lyra.sage.terminal.question import Decision, TerminalQuestion, plan_question
from lyra.sage.terminal.question_desk import QuestionDesk
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    Line,
    clip,
    indent_lines,
    scrub,
    scrub_lines,
    theme_samples,
    use_theme,
    wrap_text,
)
from lyra.sage.terminal.turn_view import TurnView

_LINES_AT_ONCE: Final = 16  # lines of a turn that are shown before the keyboard has its chance


class Submission:
    """A text from the prompt; `folded` is how it stood there, with marks in place of pasted texts. `is_shown`: it
    stands on the screen already, as the last line."""

    __slots__ = ("folded", "images", "is_shown", "key", "text")

    def __init__(self, text: str, folded: str = "", *, is_shown: bool = False, images: Sequence[Any] = ()) -> None:
        self.text = text
        self.folded = folded or text
        self.is_shown = is_shown
        self.images = tuple(images)
        self.key = ""  # of a message that the model is to read in the middle of the turn

    @property
    def is_message(self) -> bool:
        """Whether it is for the model, and no command."""
        text = self.text.strip()
        return bool(text) and not is_command(text) and not text.startswith("!")


class Conversation:
    """The state between the prompt and the session."""

    def __init__(self, session: LiveSession, paper: Paper, *, clock: Clock | None = None) -> None:
        self.session = session
        self.clock = clock or loop_clock()
        self.sheet = Sheet(paper)
        self.folds = Folds()
        self._tasks = Tasks()
        self._is_commanding = False  # a slash command runs, which may ask a model
        self._wait: TurnView | None = None  # a wait of that command for the provider
        self.desk = QuestionDesk(session, self.sheet, self.folds, self.clock, self._tasks)
        self.waiting: deque[Submission] = deque()
        self.view: TurnView | None = None
        self.picker: Picker | None = None  # choices of a command, while they are offered
        self.can_pick = False  # the screen has keys for a picker
        self.restore: Callable[[str], None] = lambda _text: None  # gives a text back to the prompt
        self.refresh: Callable[[], None] = lambda: None  # the status may have changed
        self.reopened: Callable[[], None] = lambda: None  # another session is open in place of the first
        self.changed: Callable[[], None] = lambda: None  # what waits has changed
        self.look: Callable[[], None] = lambda: None  # tell what has changed in files, before something is done
        self.ended = False
        self._effort = "medium"  # that the key for thinking goes back to
        self._beside: list[str] = []  # output of the user's commands, for the next prompt
        self._steered: list[Submission] = []  # that the model has got, and the screen does not show yet
        self._shell: ShellView | None = None
        self._turn: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._next_mode = ""  # to which the mode is being changed
        self._has_looked = False  # at all files of the folder, which undo needs
        self._wake = asyncio.Event()
        session.steering.listeners.append(self._on_steered)
        session.on_wait.append(self._on_wait)
        self.desk.on_plan = self._on_plan

    @property
    def paper(self) -> Paper:
        return self.sheet.paper

    @property
    def working(self) -> bool:
        return self.view is not None or self._shell is not None or self._is_commanding

    # ------------------------------------------------------------ what the person does
    def submit(self, submission: Submission) -> None:
        """Take a text of the prompt: an answer to a question, or something to do next."""
        self.desk.queue.text_submitted()
        if self.desk.takes_text:
            self.desk.submit(submission.text)
            return
        if submission.text.strip().startswith("/expand"):
            self._expand(submission.text)
            return
        if self.working and is_command(submission.text.strip()) and only_reads(submission.text):
            self._tasks.start(self._answer_beside(submission), name="command")
        elif submission.text.strip():
            self.waiting.append(submission)
            self._wake.set()
            if self.view is not None and all(waiting.is_message for waiting in self.waiting):
                self._tasks.start(self._steer(submission), name="steer")
            self.changed()
            self.paper.mark_changed()

    async def _answer_beside(self, submission: Submission) -> None:
        """Answer a command that only reads, while something else is under way."""
        try:
            result = await run_slash_command(self.session, submission.text.strip())
        except LyraError as error:
            self._echo(submission)
            self._show_error(error)
        else:
            self._show_result(result, submission)

    def _show_result(self, result: ShownResult, submission: Submission | None = None) -> None:
        """Offer the choices of a command, or print its blocks, below the command where that does not stand there."""
        if result.choices is not None and self.can_pick and result.choices.rows:
            self.picker = Picker(result.choices)
            self.paper.mark_changed()
            return
        if submission is not None:
            self._echo(submission)
        self.sheet.print("command", result.lines(self.sheet.width, self.paper.facts))

    def pick(self) -> None:
        """Take the row of the picker that is marked: its command is done."""
        picker, self.picker = self.picker, None
        if picker is not None and picker.marked is not None:
            self.submit(Submission(picker.marked.command))
        self.paper.mark_changed()

    def close_picker(self) -> bool:
        """Choose nothing; False where nothing is offered."""
        is_open, self.picker = self.picker is not None, None
        self.paper.mark_changed()
        return is_open

    async def _steer(self, submission: Submission) -> None:
        """Have the model read a waiting message before it is asked next; one with images waits for its own turn."""
        attached = await attach(self.session, submission.folded)
        if submission.images or attached.images:
            return
        if submission in self.waiting and self.view is not None and self.session.is_busy:
            submission.key = self.session.steer(submission.text, beside=attached.beside, own=attached.own)

    def _on_steered(self, key: str, _text: str) -> None:
        """Take a waiting message as sent: the model has got it, after the calls whose ends are still to be shown."""
        for submission in self.waiting:
            if submission.key == key:
                self.waiting.remove(submission)
                self._steered.append(submission)
                self._show_steered()
                self.changed()
                return

    def _show_steered(self) -> None:
        """Print the messages that the model has got in the middle of the turn, below the calls before them."""
        if self.view is None or not self._steered or self.view.is_calling:
            return
        self.view.hold()
        width = self.sheet.width
        for submission in self._steered:
            lines = prompt_lines(submission.folded.strip(), width, self.paper.facts)
            self.sheet.print("user", [*lines, *note_lines("sent in the middle of its work", width)])
        self._steered.clear()

    def interrupt(self) -> bool:
        """Stop what runs; False where nothing runs. A second time, the turn is left without waiting for its end."""
        if not self.working:
            return False
        self._give_back()
        if self._shell is not None:
            self._tasks.start(self._shell.stop(), name="stop shell command")
        elif self._is_stopping and self._turn is not None:
            self._turn.cancel()
        else:
            self._is_stopping = True
            self._tasks.start(self._interrupt(), name="interrupt")
        return True

    def _on_plan(self, decision: Decision) -> None:
        """Carry a plan out, or put what is to be changed in it to the model."""
        if decision.word == "go":
            self.submit(Submission("/plan go"))
        elif decision.word == "change" and decision.text:
            self.submit(Submission(decision.text))

    def _give_back(self) -> None:
        """Put what waits back into the prompt, before what is typed there."""
        self.session.steering.clear()
        texts = [submission.folded for submission in self.waiting]
        self.waiting.clear()
        if texts:
            self.restore("\n".join(texts))
            self.changed()

    def end(self) -> None:
        """Leave: the run ends as soon as what runs has stopped."""
        self.ended = True
        self._give_back()
        self.interrupt()
        self._wake.set()

    def expand_all(self) -> None:
        """Show whole what was folded since the last prompt."""
        folds = self.folds.take_unseen()
        if not folds:
            self.note("nothing more is folded; /expand lists what was")
        for fold in folds:
            self.sheet.print("fold", render_fold(fold, self.sheet.width, self.paper.facts))

    def cycle_mode(self, modes: tuple[str, ...]) -> None:
        """Switch to the next permission mode."""
        current = self._next_mode or self.session.mode  # the key may be pressed again before the first change is made
        self._next_mode = mode = modes[(modes.index(current) + 1) % len(modes)] if current in modes else modes[0]
        self._tasks.start(self._set_mode(mode), name="mode")

    def toggle_effort(self) -> None:
        """Have the model think from its next answer on, as much as before it was told not to; or no more."""
        session, thinks = self.session, self.session.effort not in ("", "none")
        if thinks:
            self._effort = session.effort
        session.set_effort("none" if thinks else self._effort)
        self.note(session.effort_note or f"effort: {session.effort}")
        self.refresh()

    async def _set_mode(self, mode: str) -> None:
        try:
            await self.session.set_mode(mode)
        except LyraError as error:
            self._show_error(error)
        if self._next_mode == mode:
            self._next_mode = ""
        self.refresh()

    def notice(self, task: TaskRecord) -> None:
        """Show that a sub-agent or command in the background is done, has failed or asks something."""
        line = task.question_line()
        if line is not None:
            self.note(f"{task_words(task)} asks:", "waits")
            line["background"] = True
            self.paper.alert("Sage asks")
            self.desk.ask(TerminalQuestion(line, self.session.folder))
        else:
            self.note(f"{task_words(task)}: {task.state}", "failed" if task.state == "failed" else "faint")

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do something beside what runs, until the end of the conversation."""
        self._tasks.start(work, name=name)

    def note(self, text: str, style: str = "faint") -> None:
        self.sheet.print("note", note_lines(text, self.sheet.width, style))

    def _expand(self, text: str) -> None:
        number = text.partition("/expand")[2].strip()
        if not number:
            recent = self.folds.recent(20)
            lines: list[Line] = [[("", f"{' ' * MARGIN}{fold.number:>4}  {scrub(fold.title)[:80]}")] for fold in recent]
            self.sheet.print("fold", lines or note_lines("nothing was folded", self.sheet.width))
            return
        fold = self.folds.get(int(number)) if number.isascii() and number.isdecimal() else None
        if fold is None:
            self.note(f"there is no fold {number[:20]}; /expand lists them")
        else:
            self.sheet.print("fold", render_fold(fold, self.sheet.width, self.paper.facts))

    # ------------------------------------------------------------ the loop
    async def run(self) -> None:
        """Do what is submitted, until the end."""
        try:
            while not self.ended:
                if not self.waiting:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                submission = self.waiting.popleft()
                self.changed()
                await self._perform(submission)
                self.refresh()
                self.paper.mark_changed()
        finally:
            await self._tasks.close()

    async def _perform(self, submission: Submission) -> None:
        text = submission.text.strip()
        try:
            self.look()
            if text.startswith("!") and text[1:].strip():
                self._echo(submission)
                await self._run_shell(text[1:].strip())
            elif is_command(text) and only_reads(text):
                await self._answer_beside(submission)
            elif is_command(text):
                self._echo(submission)
                await self._run_command(text)
            else:
                await self._run_prompt(submission)
        except LyraError as error:
            self._show_error(error)
        except Exception as error:  # noqa: BLE001 - a bug in a turn or command does not end the session
            self.note(f"internal error: {type(error).__name__}: {error}; what was done is kept", "failed")

    def _echo(self, submission: Submission) -> None:
        """Print what the person sent, so that it stays in the scrollback."""
        if submission.is_shown:
            self.sheet.was_shown("user")
        else:
            self.sheet.print("user", prompt_lines(submission.folded.strip(), self.sheet.width, self.paper.facts))

    async def _run_command(self, text: str) -> None:
        self._is_commanding, self._is_stopping = True, False
        try:
            result = await run_slash_command(self.session, text)
        finally:
            self._is_commanding, self._wait = False, None
        if len(result.themes) == 1:
            use_theme(result.themes[0])
        if result.themes:
            self.sheet.print("command", theme_samples(result.themes))
        is_open = await result.open_session(self.session)  # nothing is said of one that cannot be opened
        self._show_result(result)
        if is_open:
            self.reopened()
        if result.draft:
            self.restore(result.draft)
        if result.prompt:
            await self._run_turn(result.prompt, **result.send_with)
        if result.exit:
            self.end()

    def _on_wait(self, event: Retrying) -> None:
        """Count down as in a turn."""
        self._wait = TurnView(self.sheet, self.folds, self.clock)
        self._wait.take(cast("RetryLine", event.to_data()))
        self.paper.mark_changed()

    async def _run_shell(self, command: str) -> None:
        self._shell = ShellView(command, self.session.folder, self.sheet, self.folds)
        try:
            outcome = await self._shell.run()
        finally:
            self._shell = None
        self._beside.append(outcome.for_model)

    async def _run_prompt(self, submission: Submission) -> None:
        self._echo(submission)
        attached = await attach(self.session, submission.folded)
        for text in attached.notes:
            self.note(text)
        beside, self._beside = "\n\n".join([*self._beside, *filter(None, [attached.beside])]), []
        images = (*submission.images, *attached.images)
        await self._run_turn(submission.text, beside=beside, own=attached.own, images=images)

    # ------------------------------------------------------------ one turn
    async def _run_turn(self, content: Any, **send_with: Any) -> None:
        self.folds.begin_turn()
        self._is_stopping = False
        output = str(self.session.facts.settings.get("output", "text"))
        view = TurnView(self.sheet, self.folds, self.clock, folder=self.session.folder, output=output)
        self.view = view
        self.desk.begin(view)
        if not self._has_looked:  # while the model thinks, and not before the first command: it reads every file once
            self._has_looked = True
            self._tasks.start(asyncio.to_thread(self.session.snapshots.scan), name="first look at the files")
        self._turn = self._tasks.start(self._show_turn(view, content, send_with), name="turn")
        try:
            await asyncio.wait([self._turn])
            if self._turn.cancelled():
                view.status = "interrupted"
            elif (failure := self._turn.exception()) is not None:
                raise failure
        finally:
            self._turn.cancel()
            view.finish()
            self._show_steered()
            self.desk.end()
            self.view = self._turn = None
        self.paper.alert("Sage is done" if view.status == "success" else "Sage has stopped")
        if view.status == "success" and self.session.mode == "plan":
            self.desk.ask(plan_question())
        if view.status == "interrupted":
            self.note("interrupted; what was said stays in the conversation", "waits")
        elif view.status not in ("success", "") and not view.has_failed:
            self.note(f"ended: {scrub(view.status)}", "failed")

    async def _show_turn(self, view: TurnView, content: Any, send_with: dict[str, Any]) -> None:
        count = 0
        async with aclosing(self.session.send(content, **send_with)) as lines:
            async for line in lines:
                if line["type"] == "interrupt":
                    self.paper.alert("Sage asks")
                    self.desk.ask(TerminalQuestion(line, self.session.folder))
                else:
                    await view.prepare(line)
                    view.take(line)
                    self._show_steered()
                if line["type"] in ("usage", "tool_end"):
                    self.refresh()
                count += 1
                if count % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _interrupt(self) -> None:
        try:
            await self.session.interrupt()
        except LyraError as error:
            self._show_error(error)

    def _show_error(self, error: LyraError) -> None:
        self.sheet.print("error", error_lines(error, self.sheet.width))

    # ------------------------------------------------------------ what is live
    def live_lines(self, width: int, rows: int) -> list[Line]:
        """Return what runs, the current question, and what waits; in at most so many lines."""
        if self.desk.current is not None:
            return self.desk.live_lines(width)[:rows]
        if self.picker is not None:
            return self.picker.live_lines(width, rows, self.paper.facts.marks)
        lines: list[Line] = []
        blank: list[Line] = [[]]
        if self.view is not None:
            lines = self.view.live_lines(width, rows - 2)
            blank = [] if self.view.shows_calls and self.sheet.follows_closely("tool") else blank
        elif self._shell is not None:
            lines = self._shell.live_lines(width, rows - 2)
        elif self._wait is not None:
            lines = self._wait.live_lines(width, rows - 2)
        hints = self._hints()
        if hints:
            joined = f" {self.paper.facts.marks.dot} ".join(hints)
            lines = [*lines, [("faint", f"{' ' * MARGIN}{joined}")]]
        return [*blank, *lines] if lines else []

    def _hints(self) -> list[str]:
        if not self.working:
            return []
        count = len(self.waiting)
        waits = [] if not count else ["1 message waits"] if count == 1 else [f"{count} messages wait"]
        return ["esc interrupts", *waits, *(["ctrl-o shows everything"] if self.view is not None else [])]


# ---------------------------------------------------------------- shell view

_ROWS_MAX: Final = 200  # printed when it has ended; the rest is folded
_LIVE_ROWS: Final = 10
_LIVE_CHARS: Final = 4_000


class ShellView:
    """One command of the user."""

    def __init__(self, command: str, folder: str, sheet: Sheet, folds: Folds) -> None:
        self._command = UserCommand(command, folder)
        self._title = command
        self._sheet = sheet
        self._folds = folds
        self._last = ""

    async def run(self) -> UserCommandOutcome:
        outcome = await self._command.run(self._tell)
        width = self._sheet.width
        lines = scrub_lines(outcome.output)
        printed: list[Line] = []
        if len(lines) > _ROWS_MAX:
            fold = self._folds.add(f"!{self._title}", outcome.output)
            before = count_lines(len(lines) - _ROWS_MAX, "before")
            printed += note_lines(f"… {before} · /expand {fold.number}", width)
        for text in lines[-_ROWS_MAX:]:
            printed += indent_lines([[("", row)] for row in wrap_text(text, width - MARGIN)], MARGIN)
        if outcome.exit_code:
            printed += note_lines(f"exit code {outcome.exit_code}", width, "failed")
        self._sheet.print("command", printed or note_lines("no output", width))
        return outcome

    async def stop(self) -> None:
        await self._command.stop()

    def _tell(self, piece: str) -> None:
        self._last = (self._last + piece)[-_LIVE_CHARS:]
        self._sheet.paper.mark_changed()

    def live_lines(self, width: int, rows: int) -> list[Line]:
        lines: list[Line] = [[("faint", f"{' ' * MARGIN}{text}")] for text in scrub_lines(self._last)]
        return [clip(line, width) for line in lines[-min(rows, _LIVE_ROWS) :]]


# ---------------------------------------------------------------- user command

_KEPT_CHARS_MAX: Final = 20_000  # of the output, for the model
_READ_BYTES: Final = 1 << 16
_GRACE_S: Final = 1.0  # between the polite signal and the other


class UserCommandOutcome(NamedTuple):
    command: str
    exit_code: int
    output: str
    is_cut: bool

    @property
    def for_model(self) -> str:
        """The command and its output, as the model is told of it."""
        cut = "(only the end of its output)\n" if self.is_cut else ""
        return f"I ran a command in my shell: {self.command}\nexit code {self.exit_code}\n{cut}{self.output}"


class UserCommand:
    """A command that runs until it ends or is stopped."""

    def __init__(self, command: str, folder: str) -> None:
        self._command = command
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False

    async def run(self, tell: Callable[[str], None]) -> UserCommandOutcome:
        """Run it to its end; `tell` is called with pieces of its output."""
        shell = os.environ.get("SHELL") or "/bin/sh"
        process = self._process = await asyncio.create_subprocess_exec(
            shell,
            "-c",
            self._command,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        kept, is_cut = "", False
        assert process.stdout is not None
        try:
            while data := await process.stdout.read(_READ_BYTES):
                piece = data.decode("utf-8", "replace")
                tell(piece)
                kept += piece
                if len(kept) > 2 * _KEPT_CHARS_MAX:
                    kept, is_cut = kept[-_KEPT_CHARS_MAX:], True
            code = await process.wait()
        finally:
            await self.stop()
        if len(kept) > _KEPT_CHARS_MAX:
            kept, is_cut = kept[-_KEPT_CHARS_MAX:], True
        return UserCommandOutcome(self._command, code if code >= 0 else 128 - code, kept, is_cut)

    async def stop(self) -> None:
        """End it and all that it started in its session."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await process.wait()
                    return
