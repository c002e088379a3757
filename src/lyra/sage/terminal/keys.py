"""The keys of the live screen, and what each does, as one list. `prompt_box` has the text that is being typed.

enter submits · alt-enter, ctrl-j or a backslash at the end: a new line · tab completes · shift-tab next mode
ctrl-v puts a picture of the clipboard in · ctrl-x ctrl-e opens the prompt in $EDITOR
esc, ctrl-c interrupt what runs · esc twice goes back to an earlier prompt · ctrl-o unfolds · ctrl-l clears
ctrl-c twice or ctrl-d at an empty prompt leave · while a picker is open: letters search, arrows move, enter takes a row
ctrl-t has the model think, or think no more
while a question is open: its own keys, each alone; other letters, and words, go into the prompt
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, is_searching, vi_insert_mode, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from lyra.sage.terminal.conversation import Conversation, Submission
from lyra.sage.terminal.picker import Picker
from lyra.sage.terminal.prompt_box import PromptBox

if TYPE_CHECKING:
    from prompt_toolkit.filters import Filter

    from lyra.sage.terminal.question import TerminalQuestion


_TWICE_S: Final = 2.0  # within which a second ctrl-c leaves
_TWICE_ESCAPE_S: Final = 0.8  # within which a second escape goes back to earlier prompts
_WORD_S: Final = 0.7  # within which a key belongs to the word before it
_ALONE_S: Final = 0.3  # after which a key is an answer, and not the beginning of a word
_MODES: Final = ("default", "accept-edits", "plan", "sandboxed")


class Keyboard:
    """What keys do with the conversation and the prompt."""

    def __init__(self, conversation: Conversation, box: PromptBox) -> None:
        self.conversation = conversation
        self.box = box
        self._last_ctrl_c_s = self._last_escape_s = float("-inf")
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
        box, now_s = self.box, self._now_s()
        is_second, self._last_escape_s = now_s - self._last_escape_s < _TWICE_ESCAPE_S, now_s
        if self.conversation.close_picker():
            self._last_escape_s = float("-inf")
        elif box.completions:
            box.buffer.cancel_completion()
        elif self.conversation.desk.back():
            box.replace("")
        elif self.conversation.interrupt() or self.conversation.desk.postpone():
            box.bring_back()
        elif is_second:
            self.conversation.submit(Submission("/rewind"))

    def ctrl_c(self) -> None:
        now_s = self.conversation.clock.monotonic()
        if self.conversation.close_picker():
            return
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

    def paste_image(self) -> None:
        """Put the picture of the clipboard into the prompt."""

        async def paste() -> None:
            problem = await self.box.paste_image()
            if problem:
                self.conversation.note(problem)
            self.conversation.paper.mark_changed()

        self.conversation.start(paste(), "picture of the clipboard")

    def next_mode(self) -> None:
        self.conversation.cycle_mode(self._modes)


def bindings(keyboard: Keyboard, screen: ScreenKeys) -> KeyBindings:
    """Return the key bindings of the screen."""
    keys = KeyBindings()
    asks = Condition(lambda: keyboard.asks_for_key)
    picks = Condition(lambda: not keyboard.asks_for_key and keyboard.conversation.picker is not None)
    typing = ~asks & ~picks & ~is_searching
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
    bind(("s-tab",), keyboard.next_mode, ~menu & ~picks & ~is_searching)
    bind(("s-tab",), box.buffer.complete_previous, typing & menu)
    bind(("up",), lambda: box.buffer.complete_previous() if box.completions else box.buffer.auto_up(), typing)
    bind(("down",), lambda: box.buffer.complete_next() if box.completions else box.buffer.auto_down(), typing)
    writes = vi_insert_mode & Condition(lambda: not box.is_empty and not box.completions)  # escape ends the insertion
    bind(("escape",), keyboard.escape, ~is_searching & (~writes | picks | asks))
    bind(("c-c",), keyboard.ctrl_c, ~is_searching)
    bind(("c-d",), lambda: keyboard.conversation.end() if box.is_empty else box.buffer.delete())
    bind(("c-o",), keyboard.conversation.expand_all)
    bind(("c-t",), keyboard.conversation.toggle_effort)
    bind(("c-l",), screen.clear)
    bind(("c-z",), lambda: get_app().suspend_to_background())
    bind(("c-v",), keyboard.paste_image, typing)
    bind(("c-x", "c-e"), box.buffer.open_in_editor, typing)
    keys.add(Keys.Any, filter=typing & ~vi_navigation_mode)(insert_typed)
    keys.add(Keys.Any, filter=asks)(lambda event: keyboard.answer_key(event.data))
    for key in ("enter", "c-j", "tab", "up", "down", "c-h"):
        bind((key,), lambda: None, asks)  # Enter alone never allows
    _bind_picker(bind, keys, keyboard.conversation, picks)
    has_text = Condition(lambda: not box.is_empty)
    bind(("enter",), keyboard.submit, asks & has_text)  # a message, which waits in line
    bind(("c-h",), lambda: box.buffer.delete_before_cursor(1), asks & has_text)
    keys.add(Keys.BracketedPaste, filter=typing)(lambda event: box.paste(event.data))
    keys.add(Keys.BracketedPaste, filter=asks)(lambda _event: None)
    return keys


def _bind_picker(bind: Callable[..., None], keys: KeyBindings, conversation: Conversation, picks: Filter) -> None:
    """Bind the keys of a picker: words search, arrows move, enter takes a row."""

    def change(act: Callable[[Picker], None]) -> Callable[[], None]:
        def act_on_it() -> None:
            if conversation.picker is not None:
                act(conversation.picker)
                conversation.paper.mark_changed()

        return act_on_it

    def move(rows: int) -> Callable[[], None]:
        return change(lambda picker: picker.move(rows))

    bind(("enter",), conversation.pick, picks)
    for name, rows in {
        "up": -1,
        "c-p": -1,
        "s-tab": -1,
        "down": 1,
        "c-n": 1,
        "tab": 1,
        "pageup": -10,
        "pagedown": 10,
    }.items():
        bind((name,), move(rows), picks)
    bind(("c-h",), change(lambda picker: picker.erase()), picks)
    keys.add(Keys.Any, filter=picks)(lambda event: change(lambda picker: picker.type(event.data))())
    keys.add(Keys.BracketedPaste, filter=picks)(lambda event: change(lambda picker: picker.type(event.data))())


def _complete(box: PromptBox) -> None:
    if box.completions:
        box.buffer.complete_next()
    else:
        box.buffer.start_completion(select_first=True)


class ScreenKeys(Protocol):
    """What keys do with the screen itself."""

    def clear(self) -> None: ...
