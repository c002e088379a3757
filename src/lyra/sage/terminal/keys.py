"""The keys of the live screen, what each does, as one list; and PromptBox, the text that is being typed.

enter submits · alt-enter, ctrl-j or a backslash at the end: a new line · tab completes · shift-tab next mode
esc, ctrl-c interrupt what runs · ctrl-c twice or ctrl-d at an empty prompt leave · ctrl-o unfolds · ctrl-l clears
while a question is open: its own keys, each alone; other letters, and words, go into the prompt
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.widgets import SearchToolbar

from lyra.core.secrets.visible import without_invisible
from lyra.sage.terminal.completion import PromptHistory
from lyra.sage.terminal.conversation import Conversation, Submission
from lyra.sage.terminal.text.styled_lines import Marks, clip_text

if TYPE_CHECKING:
    from prompt_toolkit.filters import Filter

    from lyra.sage.terminal.question import TerminalQuestion


_TWICE_S: Final = 2.0  # within which a second ctrl-c leaves
_WORD_S: Final = 0.7  # within which a key belongs to the word before it
_ALONE_S: Final = 0.3  # after which a key is an answer, and not the beginning of a word
_MODES: Final = ("default", "accept-edits", "plan", "sandboxed")


class Keyboard:
    """What keys do with the conversation and the prompt."""

    def __init__(self, conversation: Conversation, box: PromptBox) -> None:
        self.conversation = conversation
        self.box = box
        self._last_ctrl_c_s = float("-inf")
        self._held: tuple[TerminalQuestion, str, asyncio.TimerHandle] | None = None  # a key that is not yet an answer
        self._text_key_s = float("-inf")  # when a key last went into the prompt at a question
        bypass = ("bypass",) if conversation.session.mode == "bypass" else ()
        self._modes = (*_MODES, *bypass)

    @property
    def asks_for_key(self) -> bool:
        question = self.conversation.desk.current
        return question is not None and not question.takes_text

    def submit(self) -> None:
        box = self.box
        if box.buffer.text.endswith("\\"):
            box.buffer.delete_before_cursor(1) if box.buffer.cursor_position == len(box.buffer.text) else None
            box.buffer.insert_text("\n")
            return
        question = self.conversation.desk.current
        if question is None or not question.takes_text:
            self.conversation.submit(box.take())
            return
        if question.takes_text:
            self.conversation.submit(box.take(keep=False))
            if self.conversation.desk.current is not question:
                box.bring_back()

    def answer_key(self, key: str) -> None:
        """Take a key while a question is open. It answers where it stands alone: one that belongs to what is being
        typed goes into the prompt, and so does the first letter of a word, which the next key shows it to be."""
        queue, question, now_s = self.conversation.desk.queue, self.conversation.desk.current, self._now_s()
        meant = queue.key_pressed() and now_s - self._text_key_s >= _WORD_S
        if self._held is not None:
            held, self._held = self._held, None
            held[2].cancel()
            key, meant = f"{held[1]}{key}", False
        if not meant or question is None or key not in {choice.key for choice in question.choices}:
            self._text_key_s = now_s
            self.box.buffer.insert_text(key)
            return
        timer = asyncio.get_running_loop().call_later(_ALONE_S, self._answer_held)
        self._held = (question, key, timer)

    def _now_s(self) -> float:
        return self.conversation.clock.monotonic()

    def _answer_held(self) -> None:
        """No other key has followed: it is an answer."""
        held, self._held = self._held, None
        desk = self.conversation.desk
        if held is None or desk.current is not held[0]:
            return
        self.box.set_aside()
        desk.press(held[1])
        if desk.current is not held[0]:
            self.box.bring_back()

    def escape(self) -> None:
        box = self.box
        if box.completions:
            box.buffer.cancel_completion()
        elif self.conversation.desk.back():
            box.replace("")
        elif self.conversation.interrupt() or self.conversation.desk.postpone():
            box.bring_back()

    def ctrl_c(self) -> None:
        now_s = self.conversation.clock.monotonic()
        if self.conversation.desk.back():
            self.box.replace("")
        elif self.conversation.interrupt() or self.conversation.desk.postpone():
            self.box.bring_back()
        elif not self.box.is_empty:
            self.box.replace("")
        elif now_s - self._last_ctrl_c_s < _TWICE_S:
            self.conversation.end()
        else:
            self._last_ctrl_c_s = now_s
            self.conversation.note("ctrl-c again, or ctrl-d, leaves")

    def next_mode(self) -> None:
        self.conversation.cycle_mode(self._modes)


def bindings(keyboard: Keyboard, screen: ScreenKeys) -> KeyBindings:
    """Return the key bindings of the screen."""
    keys = KeyBindings()
    asks = Condition(lambda: keyboard.asks_for_key)
    typing = ~asks & ~is_searching
    box = keyboard.box
    menu = Condition(lambda: box.completions)

    def bind(key: tuple[Any, ...], act: Callable[[], object], when: Filter | bool = True) -> None:
        @keys.add(*key, filter=when)
        def _(_event: KeyPressEvent) -> None:
            act()

    def enter() -> None:
        state = box.buffer.complete_state
        if state is not None and state.current_completion is not None:
            box.buffer.complete_state = None  # the chosen text stands in the prompt already
            box.buffer.insert_text("" if box.buffer.text.endswith("/") else " ")
        else:
            box.buffer.cancel_completion()
            keyboard.submit()

    def insert_typed(event: KeyPressEvent) -> None:
        if event.data.isprintable():
            keyboard.conversation.desk.queue.key_pressed()
        box.buffer.insert_text(event.data * event.arg)

    bind(("enter",), enter, typing)
    bind(("escape", "enter"), lambda: box.buffer.insert_text("\n"), typing)
    bind(("c-j",), lambda: box.buffer.insert_text("\n"), typing)
    bind(("tab",), lambda: _complete(box), typing)
    bind(("s-tab",), keyboard.next_mode, ~menu & ~is_searching)
    bind(("s-tab",), box.buffer.complete_previous, typing & menu)
    bind(("up",), lambda: box.buffer.complete_previous() if box.completions else box.buffer.auto_up(), typing)
    bind(("down",), lambda: box.buffer.complete_next() if box.completions else box.buffer.auto_down(), typing)
    bind(("escape",), keyboard.escape, ~is_searching)
    bind(("c-c",), keyboard.ctrl_c, ~is_searching)
    bind(("c-d",), lambda: keyboard.conversation.end() if box.is_empty else box.buffer.delete())
    bind(("c-o",), keyboard.conversation.expand_all)
    bind(("c-l",), screen.clear)
    bind(("c-z",), lambda: get_app().suspend_to_background())
    bind(("c-x", "c-e"), box.buffer.open_in_editor, typing)
    keys.add(Keys.Any, filter=typing)(insert_typed)
    keys.add(Keys.Any, filter=asks)(lambda event: keyboard.answer_key(event.data))
    for key in ("enter", "c-j", "tab", "up", "down", "c-h"):
        bind((key,), lambda: None, asks)  # Enter alone never allows
    has_text = Condition(lambda: not box.is_empty)
    bind(("enter",), keyboard.submit, asks & has_text)  # a message, which waits in line
    bind(("c-h",), lambda: box.buffer.delete_before_cursor(1), asks & has_text)
    keys.add(Keys.BracketedPaste, filter=typing)(lambda event: box.paste(event.data))
    keys.add(Keys.BracketedPaste, filter=asks)(lambda _event: None)
    return keys


def _complete(box: PromptBox) -> None:
    if box.completions:
        box.buffer.complete_next()
    else:
        box.buffer.start_completion(select_first=True)


class ScreenKeys(Protocol):
    """What keys do with the screen itself."""

    def clear(self) -> None: ...


# ---------------------------------------------------------------- box

_ROWS_MAX: Final = 12
_MENU_ROWS: Final = 6


_PASTE_LINES_LEAST: Final = 4  # a shorter paste is put into the prompt as it is
_PASTE_CHARS_LEAST: Final = 1_000
_MARK: Final = re.compile(r"\[paste (\d+): [^\]\n]*\]")


class Pastes:
    """Pasted texts that stand in the prompt as a mark."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def fold(self, text: str) -> str:
        """Return what to put into the prompt for a paste: the text, or a mark for one of many lines."""
        lines = text.count("\n") + 1
        if lines < _PASTE_LINES_LEAST and len(text) < _PASTE_CHARS_LEAST:
            return text
        number = len(self._texts) + 1
        self._texts[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
        return f"[paste {number}: {size}]"

    def unfold(self, text: str) -> str:
        """Return the prompt with the pasted texts in place of their marks."""
        return _MARK.sub(lambda mark: self._texts.get(int(mark[1]), mark[0]), text)


class _StoredHistory(History):
    """The kept prompts, as the buffer reads them: newest first."""

    def __init__(self, kept: PromptHistory) -> None:
        super().__init__()
        self._kept = kept

    async def load(self) -> AsyncGenerator[str, None]:
        for text in reversed(self._kept.entries):
            yield text

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._kept.entries)

    def append_string(self, string: str) -> None:
        self._kept.add(string)

    def store_string(self, string: str) -> None:
        self._kept.add(string)


class PromptBox:
    """The buffer of the prompt and its windows."""

    def __init__(self, kept: PromptHistory, completer: Completer, marks: Marks, style: Callable[[str], str]) -> None:
        self._marks = marks
        self._style = style
        self._kept = kept
        self._pastes = Pastes()
        self._draft = ""
        self.label: Callable[[], str] = lambda: ""  # what the prompt is for, where it is not for a message
        self.buffer = Buffer(
            completer=completer,
            complete_while_typing=True,
            history=_StoredHistory(kept),
            multiline=True,
            enable_history_search=False,
        )
        self.search = SearchToolbar()
        control = BufferControl(
            self.buffer,
            search_buffer_control=self.search.control,
            preview_search=True,
            include_default_input_processors=True,
        )
        self.window = Window(
            control,
            height=Dimension(min=1, max=_ROWS_MAX),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        menu = Window(FormattedTextControl(self._menu), dont_extend_height=True, height=Dimension(max=_MENU_ROWS))
        self.container = HSplit(
            [
                self.window,
                self.search,
                ConditionalContainer(menu, Condition(lambda: bool(self.completions))),
            ]
        )

    # ------------------------------------------------------------ text
    @property
    def completions(self) -> bool:
        state = self.buffer.complete_state
        return state is not None and bool(state.completions)

    @property
    def is_empty(self) -> bool:
        return not self.buffer.text

    def paste(self, text: str) -> None:
        """Put a paste into the prompt; one of many lines as a mark."""
        text = without_invisible(text.replace("\r\n", "\n").replace("\r", "\n"))
        self.buffer.insert_text(self._pastes.fold(text))

    def take(self, *, keep: bool = True) -> Submission:
        """Return the text of the prompt, which is empty then; `keep` adds it to the history."""
        folded = self.buffer.text
        if keep:
            self._kept.add(folded)
        self.buffer.reset()
        self.buffer.load_history_if_not_yet_loaded()
        return Submission(self._pastes.unfold(folded), folded)

    def replace(self, text: str) -> None:
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def set_aside(self, text: str = "") -> None:
        """Keep what is typed for later, and show another text."""
        self._draft = self.buffer.text or self._draft
        self.replace(text)

    def bring_back(self) -> None:
        """Show again what was set aside, before what has been typed since."""
        self._draft, draft = "", self._draft
        self.join(draft)

    def join(self, text: str) -> None:
        """Put a text before what is typed."""
        if text:
            self.replace("\n".join(filter(None, (text, self.buffer.text))))

    @property
    def unsent(self) -> str:
        """All that was typed and not sent, with pasted texts in place of their marks."""
        return self._pastes.unfold("\n".join(filter(None, (self._draft, self.buffer.text))))

    # ------------------------------------------------------------ windows
    def _prefix(self, line_number: int, wrap_count: int) -> StyleAndTextTuples:
        if line_number or wrap_count:
            return [("", "  ")]
        label = self.label()
        if label:
            return [(self._style("waits"), f"{label} "), (self._style("user"), f"{self._marks.prompt} ")]
        return [(self._style("user"), f"{self._marks.prompt} ")]

    def _menu(self) -> StyleAndTextTuples:
        state = self.buffer.complete_state
        if state is None:
            return []
        index = state.complete_index or 0
        first = max(0, min(index - _MENU_ROWS // 2, len(state.completions) - _MENU_ROWS))
        rows: StyleAndTextTuples = []
        for number, completion in enumerate(state.completions[first : first + _MENU_ROWS], start=first):
            style = self._style("selected") if number == state.complete_index else ""
            meta = clip_text(f"  {completion.display_meta_text}", 60) if completion.display_meta_text else ""
            rows += [
                ("", "\n" if rows else ""),
                (style, f"  {completion.display_text:<16}"),
                (self._style("faint"), meta),
            ]
        return rows
