"""The prompt: a buffer with history, completion, folded pastes and several lines, and the windows that show it.

The screen puts its windows below the live block. Submitting is left to `keys`: Enter submits, or goes on in a new line
where the text ends with a backslash.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.widgets import SearchToolbar

from lyra.core.secrets.visible import without_invisible
from lyra.sage.terminal.conversation import Submission
from lyra.sage.terminal.prompt.attachments import Pastes
from lyra.sage.terminal.prompt.completion import PromptHistory
from lyra.sage.terminal.text.styled_lines import Marks, clip_text

_ROWS_MAX: Final = 12
_MENU_ROWS: Final = 6


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
        """The text of the prompt, which is empty then; `keep` adds it to the history."""
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
        """Show again what was set aside."""
        self._draft, draft = "", self._draft
        if draft and self.is_empty:
            self.replace(draft)

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
