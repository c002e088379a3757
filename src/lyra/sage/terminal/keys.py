"""The keys of the live screen: what each does, as one list.

enter submits · alt-enter, ctrl-j or a backslash at the end: a new line · tab completes · shift-tab next mode
esc, ctrl-c interrupt what runs · ctrl-c twice or ctrl-d at an empty prompt leave · ctrl-o unfolds · ctrl-l clears
while a question is open: its own keys, each alone; other letters, and words, go into the prompt
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from lyra.sage.terminal.conversation import Conversation
from lyra.sage.terminal.prompt.box import PromptBox

if TYPE_CHECKING:
    from prompt_toolkit.filters import Filter

    from lyra.sage.terminal.questions.question import TerminalQuestion


_TWICE_S: Final = 2.0  # within which a second ctrl-c leaves
_WORD_S: Final = 0.7  # within which a key belongs to the word before it
_ALONE_S: Final = 0.3  # after which a key is an answer, and not the beginning of a word
_MODES: Final = ("default", "accept-edits", "plan")


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
        """A key while a question is open. It answers where it stands alone: one that belongs to what is being typed
        goes into the prompt, and so does the first letter of a word, which the next key shows it to be."""
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
    """The key bindings of the screen."""
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

    def typed(event: KeyPressEvent) -> None:
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
    keys.add(Keys.Any, filter=typing)(typed)
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
