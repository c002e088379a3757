"""QuestionDesk: shows the questions of a turn one after the other and hands the answers to the session.

What a question is about is printed once; its keys are live. The screen passes keys and texts on to `press` and
`submit`; what runs is told when a call waits for a person and when it continues. One is shown at a time, the others
wait behind it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lyra.core.clock import Clock
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.live import LiveSession
from lyra.sage.terminal.echo import Folds, Sheet, count_lines, error_lines, note_lines
from lyra.sage.terminal.question import Decision, TerminalQuestion
from lyra.sage.terminal.text.diff_view import count_changes, diff_lines, diff_of
from lyra.sage.terminal.text.styled_lines import (
    MARGIN,
    OBJECT_COLUMN,
    Line,
    Marks,
    exact,
    exact_lines,
    indent_lines,
    row,
    scrub,
    width_of,
    wrap,
    wrap_text,
)
from lyra.sage.terminal.tool_lines import describe, main_argument
from lyra.sage.terminal.turn_view import TurnView

_WORDS: Final = {
    "allow": "allowed once",
    "always": "allowed from now on",
    "deny": "denied",
    "retry": "done again",
    "skip": "taken as done",
    "fail": "stopped",
    "go": "approved",
    "change": "to be changed",
    "keep": "the plan goes on; a message changes it, /plan go carries it out",
}


class QuestionDesk:
    """The questions of a session, from their line to their answer."""

    def __init__(self, session: LiveSession, sheet: Sheet, folds: Folds, clock: Clock, tasks: Tasks) -> None:
        self.queue = QuestionQueue(clock)
        self.sandbox = ""  # the tier that holds commands
        self.restore: Callable[[str], None] = lambda _text: None  # puts a text into the prompt
        self.on_plan: Callable[[Decision], None] = lambda _decision: None  # what was decided about a plan
        self._session = session
        self._sheet = sheet
        self._folds = folds
        self._tasks = tasks
        self._view: TurnView | None = None

    @property
    def current(self) -> TerminalQuestion | None:
        return self.queue.current

    @property
    def takes_text(self) -> bool:
        return self.current is not None and self.current.takes_text

    @property
    def label(self) -> str:
        """Return what the prompt is for; empty where it is for a message."""
        return self.current.label if self.current is not None else ""

    # ------------------------------------------------------------ asking
    def begin(self, view: TurnView) -> None:
        """Begin a turn; its questions stand below what it has shown. A plan that was asked about is changed by it."""
        self._view = view
        if self.current is not None and self.current.is_plan:
            self._next()

    def end(self) -> None:
        """End the turn: its questions are over, too."""
        self._view, before = None, self.current
        self.queue.clear()
        if self.current is not None and self.current is not before:
            self._show(self.current)

    def postpone(self) -> bool:
        """Leave the question of a task in the background for later; False where there is none."""
        question = self.current
        if question is None or not question.outlives_turn:
            return False
        if question.is_plan:
            self._decide(question, Decision("keep"))
            return True
        self._sheet.print("note", note_lines("left for later; /tasks shows what waits", self._sheet.width))
        self._next()
        return True

    def ask(self, question: TerminalQuestion) -> None:
        """Take a question of the turn, and show it when it is its turn."""
        if self.queue.holds(question.id):
            return
        if self._view is not None:
            self._view.pause(question.call_id, waiting=True)
        if self.queue.add(question):
            self._show(question)
        self._sheet.paper.mark_changed()

    def _show(self, question: TerminalQuestion) -> None:
        if self._view is not None:
            self._view.stand_back(waiting=False)
            self._view.hold()
            if question.diff:
                self._view.diff_was_shown(question.call_id)
        setting = AboutSetting(
            self._sheet.width, self._sheet.paper.facts.marks, self._folds, self._session.folder, self.sandbox
        )
        lines = about_lines(question, setting) if not question.is_plan else []
        self._sheet.print("tool" if question.is_permission else "question", lines)
        if self._view is not None:
            self._view.stand_back(waiting=True)

    def live_lines(self, width: int) -> list[Line]:
        """Return the keys of the current question."""
        question = self.current
        return [] if question is None else [[], *key_lines(question, width, position=self.queue.position)]

    # ------------------------------------------------------------ answering
    def press(self, key: str) -> bool:
        """Return a key for the current question; False where it has no meaning there."""
        question = self.current
        meaning = question.press(key) if question is not None else None
        if question is None or meaning is None:
            return False
        if isinstance(meaning, Decision):
            self._decide(question, meaning)
        elif meaning == "why":
            self._sheet.print("note", why_lines(question, self._sheet.width))
        elif meaning == "text":
            self.restore(question.draft)
        self._sheet.paper.mark_changed()
        return True

    def submit(self, text: str) -> None:
        """Take a text as the answer to the current question."""
        question = self.current
        decision = question.answer(text) if question is not None else None
        if question is None:
            return
        if decision is None:
            self._sheet.print("note", note_lines("that is no answer: it is empty, or no JSON object", 80, "waits"))
            self.restore(text)
        else:
            self._decide(question, decision)

    def back(self) -> bool:
        """Leave the text of an answer for its keys; False where there is none."""
        return self.current is not None and self.current.back()

    def _decide(self, question: TerminalQuestion, decision: Decision) -> None:
        words = _WORDS.get(decision.word, "answered")
        words = f"{words}, as edited" if decision.arguments is not None else words
        words = f"{words}: {scrub(decision.text)}" if decision.text and not question.is_plan else words
        style = "removed" if decision.word in ("deny", "fail") else "faint"
        self._sheet.print("tool", note_lines(words, self._sheet.width, style, indent=OBJECT_COLUMN))
        if self._view is not None:
            self._view.pause(question.call_id, waiting=False)
            self._view.answer_was_shown(question.call_id, decision.arguments)
            if decision.word == "deny":
                self._view.denial_was_shown(question.call_id)
        if question.is_plan:
            self._next()
            self.on_plan(decision)
            return
        self._tasks.start(self._send(question, decision), name="answer")
        self._next()

    def _next(self) -> None:
        following = self.queue.close()
        if following is not None:
            self._show(following)
        elif self._view is not None:
            self._view.stand_back(waiting=False)
        self._sheet.paper.mark_changed()

    async def _send(self, question: TerminalQuestion, decision: Decision) -> None:
        try:
            await self._session.answer(question.id, decision.word, text=decision.text, arguments=decision.arguments)
        except LyraError as error:
            self._sheet.print("error", error_lines(error, self._sheet.width))


# ---------------------------------------------------------------- queue

_PAUSE_S: Final = 0.6  # without a key, before a question that came while the person typed takes keys
_SEEN_S: Final = 0.15  # before a question takes keys that follows one that was answered by a key


class QuestionQueue:
    """The queue of questions, and when the first takes keys."""

    __slots__ = ("_clock", "_last_key_s", "_pause_s", "_shown_s", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[TerminalQuestion] = deque()
        self._last_key_s = float("-inf")
        self._shown_s = 0.0
        self._pause_s = 0.0

    @property
    def current(self) -> TerminalQuestion | None:
        return self._waiting[0] if self._waiting else None

    @property
    def position(self) -> str:
        """Return how many wait behind the current one, in words."""
        behind = len(self._waiting) - 1
        return f" ({behind} more behind it)" if behind > 0 else ""

    def add(self, question: TerminalQuestion) -> bool:
        """Take a question; True where it is the current one."""
        self._waiting.append(question)
        if len(self._waiting) == 1:
            self._show()
            return True
        return False

    def close(self) -> TerminalQuestion | None:
        """Return the current one was answered; gives the next, which has to be seen before it takes keys."""
        if self._waiting:
            self._waiting.popleft()
        self._shown_s, self._last_key_s = self._clock.monotonic(), float("-inf")
        self._pause_s = _SEEN_S
        return self.current

    def clear(self) -> None:
        """Drop the questions of a turn that is over: only tasks in the background still wait for answers."""
        self._waiting = deque(question for question in self._waiting if question.outlives_turn)

    def holds(self, question_id: str) -> bool:
        return any(question.id == question_id for question in self._waiting)

    def _show(self) -> None:
        self._shown_s = self._clock.monotonic()
        self._pause_s = _PAUSE_S if self._shown_s - self._last_key_s < _PAUSE_S else 0.0

    def text_submitted(self) -> None:
        """Note that the person has sent what they typed: a question that comes now is not typed over."""
        self._last_key_s = float("-inf")

    def key_pressed(self) -> bool:
        """Return a key of any kind; gives whether it is meant for the current question."""
        now_s = self._clock.monotonic()
        meant = now_s - max(self._last_key_s, self._shown_s) >= self._pause_s
        if meant:
            self._pause_s = 0.0
        self._last_key_s = now_s
        return meant


# ---------------------------------------------------------------- question view
# What a question is about, printed once above its keys: exactly what will happen, nothing of it left out unsaid.

_ROWS_MAX: Final = 400
_SHORT_CHARS: Final = 60  # arguments that together are shorter stand in the first line, whole
_EDITS: Final = ("Edit", "MultiEdit", "Write")
_IN_DIFF: Final = frozenset(
    {"file_path", "old_string", "new_string", "content", "edits", "notebook_path", "cell", "new_source", "edit_mode"}
)


class AboutSetting(NamedTuple):
    """Where a question is shown, and what holds the commands of the session."""

    width: int
    marks: Marks
    folds: Folds
    folder: str = ""
    sandbox: str = ""


def about_lines(question: TerminalQuestion, setting: AboutSetting) -> list[Line]:
    """Return the lines above the keys of a question."""
    if not question.is_permission or not question.tool:
        return _fold_long(_render_question(question, setting.width), "\n".join(question.body), setting)
    words = describe(question.tool, question.arguments, setting.folder)
    diff = _diff(question)
    figures: Line = []
    if diff:
        count = count_changes(diff)
        figures = [("added", f"+{count.added}")]
        figures += [("removed", f"  {setting.marks.minus}{count.removed}")] if count.removed else []
        body = _fold_long(diff_lines(diff, setting.width, marks=setting.marks), diff, setting, title="diff")
    else:
        body = _subject(question, words.about, setting)
    asking = question.line.get("agent")
    rest = [*([f"for {exact(asking)}"] if asking else []), *_rest(question, shown=_IN_DIFF if diff else frozenset())]
    return [
        *row(words.verb, [("", words.about)], figures, setting.width, mark=setting.marks.ellipsis),
        *body,
        *_faint([*rest, *_holding(question, setting)], setting.width),
    ]


def _diff(question: TerminalQuestion) -> str:
    """Return what an edit changes: in the file, or where that cannot be shown, by its arguments alone."""
    if question.diff or question.tool not in _EDITS:
        return question.diff
    arguments = question.arguments
    edits = arguments.get("edits") if question.tool == "MultiEdit" else [arguments]
    pieces = [
        diff_of(str(edit.get("old_string", "")), str(edit.get("new_string", edit.get("content", ""))))
        for edit in (edits if isinstance(edits, list) else [])
        if isinstance(edit, Mapping)
    ]
    return "\n".join(piece for piece in pieces if piece)


def _subject(question: TerminalQuestion, about: str, setting: AboutSetting) -> list[Line]:
    """Return all of what the call is about, where the first line has only a part of it."""
    name = main_argument(question.tool)
    if name:
        text = str(question.arguments.get(name, ""))
        if exact(text) == about and len(about) + OBJECT_COLUMN <= setting.width:
            return []
    else:
        text = json.dumps(question.arguments, ensure_ascii=False)
        if len(text) <= _SHORT_CHARS:
            return []
        text = json.dumps(question.arguments, ensure_ascii=False, indent=2)
    lines: list[Line] = []
    for part in exact_lines(text):
        lines += wrap([("", f"{' ' * OBJECT_COLUMN}{part}")], setting.width, hanging=OBJECT_COLUMN)
    return _fold_long(lines, text, setting)


def _rest(question: TerminalQuestion, *, shown: frozenset[str]) -> list[str]:
    """Return the other arguments of a call whose main one is shown."""
    name = main_argument(question.tool)
    if not name:
        return []
    rest = {key: value for key, value in question.arguments.items() if key != name and key not in shown}
    if not rest:
        return []
    return ["with " + ", ".join(f"{exact(key)}={exact(_text(value))}" for key, value in rest.items())]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _holding(question: TerminalQuestion, setting: AboutSetting) -> list[str]:
    """Return what holds a command: the sandbox and its network."""
    if question.tool == "Git":
        hooks = "with the hooks of the repository" if question.arguments.get("hooks") else "without hooks"
        return [f"outside the sandbox, {hooks}, and no program of its settings runs"]
    if question.tool != "Bash":
        return []
    held = f"in the sandbox ({setting.sandbox})" if setting.sandbox not in ("", "none") else "in the sandbox"
    network = str(question.line.get("network") or "no network but hosts that a rule names")
    return [f"{held}, {exact(network)}"]


def _faint(texts: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for text in texts:
        lines += wrap([("faint", f"{' ' * OBJECT_COLUMN}{text}")], width, hanging=OBJECT_COLUMN)
    return lines


def _render_question(question: TerminalQuestion, width: int) -> list[Line]:
    lines: list[Line] = []
    for text in question.body:
        lines += [[("", part)] for part in wrap_text(text, width - MARGIN)]
    if not question.is_permission and not question.is_doubt:
        for option in question.options:
            lines += wrap([("key", "  "), ("", option)], width - MARGIN, hanging=5)
    return indent_lines(lines, MARGIN)


def _fold_long(lines: list[Line], text: str, setting: AboutSetting, *, title: str = "question") -> list[Line]:
    """At most so many lines; the rest is folded, and a line says how to see it."""
    if len(lines) <= _ROWS_MAX:
        return lines
    fold = setting.folds.add(title, text)
    marks = setting.marks
    more = f"{marks.ellipsis} {count_lines(len(lines) - _ROWS_MAX, 'more')} {marks.dot} /expand {fold.number} shows all"
    return [*lines[:_ROWS_MAX], [("waits", f"{' ' * OBJECT_COLUMN}{more}")]]


# ---------------------------------------------------------------- question view

_GAP: Final = 4


def key_lines(question: TerminalQuestion, width: int, *, position: str = "") -> list[Line]:
    """Return the live lines: why it is asked, and the keys; the keys stand below each other where one line is too
    short."""
    lines: list[Line] = []
    if question.is_permission and question.reason:
        lines += wrap([("faint", f"{' ' * MARGIN}{question.reason}")], width, hanging=MARGIN)[:3]
    title = f"{question.title}{position}"
    if question.takes_text:
        hints = {
            "why not": "no: type why, enter sends it, esc goes back",
            "edit": "edit, enter allows it, esc goes back",
            "answer": "type an answer or a number, enter sends it",
            "change the plan": "type what to change, enter sends it, esc goes back",
        }
        return [*lines, [("waits", f"{' ' * MARGIN}{hints[question.label]}{position}")]]
    return [*lines, *_flow([("waits", f"{' ' * MARGIN}{title}")], question, width)]


def _flow(first: Line, question: TerminalQuestion, width: int) -> list[Line]:
    """Return the keys in as few lines as they fit, none of them broken where it can be helped."""
    rows: list[Line] = [first]
    is_full = False  # the last row belongs to a key whose words took several
    for choice in question.choices:
        part: Line = [("key", choice.key), ("", f"  {choice.words}")]
        if not is_full and width_of(rows[-1]) + _GAP + width_of(part) <= width:
            rows[-1] = [*rows[-1], ("", " " * (3 if rows[-1] is first else _GAP)), *part]
        else:
            wrapped = wrap([("", " " * (MARGIN + 2)), *part], width, hanging=MARGIN + 5)
            is_full = len(wrapped) > 1
            rows += wrapped
    return rows


def why_lines(question: TerminalQuestion, width: int) -> list[Line]:
    """Return the answer to `?`."""
    rows: list[Line] = []
    for text in question.why:
        rows += indent_lines([[("faint", part)] for part in wrap_text(text, width - OBJECT_COLUMN)], OBJECT_COLUMN)
    return rows
