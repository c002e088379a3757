"""PromptBox: the text that is being typed, with its pastes, pictures, completions and earlier prompts.

A paste of many lines, and a picture from the clipboard, stand in the prompt as a short mark; `take` gives the text with
the pastes in their places, and the pictures. A picture is read by the clipboard program of the system that is found
first (`_CLIPBOARDS`). Which keys do what is said by `keys`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, vi_navigation_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.widgets import SearchToolbar

from lyra.core.secrets.visible import without_invisible
from lyra.errors import ConfigError
from lyra.sage.agent.attachments import show_size
from lyra.sage.terminal.completion import PromptHistory
from lyra.sage.terminal.conversation import Submission
from lyra.sage.terminal.text.styled_lines import Marks, clip_text

_ROWS_MAX: Final = 12
_MENU_ROWS: Final = 6
_PASTE_LINES_LEAST: Final = 4  # a shorter paste is put into the prompt as it is
_PASTE_CHARS_LEAST: Final = 1_000
_MARK: Final = re.compile(r"\[paste (\d+): [^\]\n]*\]")
_PICTURE_MARK: Final = re.compile(r"\[image (\d+): [^\]\n]*\]")


class Pastes:
    """Pasted texts and pictures that stand in the prompt as a mark."""

    __slots__ = ("_images", "_texts")

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._images: dict[int, Any] = {}

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

    def fold_image(self, data: bytes) -> str:
        """Return the mark of a picture; ConfigError where models cannot read it."""
        from lyra.agents.declaration.output import Image

        image = Image.from_bytes(data)
        number = len(self._images) + 1
        self._images[number] = image
        return f"[image {number}: {show_size(len(data))}]"

    def images_of(self, text: str) -> list[Any]:
        """Return the pictures whose marks a text has."""
        numbers = dict.fromkeys(int(mark[1]) for mark in _PICTURE_MARK.finditer(text))
        return [self._images[number] for number in numbers if number in self._images]


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

    async def paste_image(self) -> str:
        """Put the picture of the clipboard into the prompt as a mark; gives why there is none."""
        data = await read_clipboard_image(os.environ)
        if data is None:
            return "there is no picture in the clipboard, or no program that reads it (wl-paste, xclip, pngpaste)"
        try:
            self.buffer.insert_text(f"{self._pastes.fold_image(data)} ")
        except ConfigError as error:
            return error.message
        return ""

    def take(self, *, keep: bool = True) -> Submission:
        """Return the text of the prompt, which is empty then; `keep` adds it to the history."""
        folded = self.buffer.text
        if keep:
            self._kept.add(folded)
        self.buffer.reset()
        self.buffer.load_history_if_not_yet_loaded()
        get_app().vi_state.reset()
        return Submission(self._pastes.unfold(folded), folded, images=self._pastes.images_of(folded))

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
        return [(self._style("user"), f"{':' if vi_navigation_mode() else self._marks.prompt} ")]

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


# ---------------------------------------------------------------- clipboard

_CLIPBOARD_S: Final = 3.0
_IMAGE_BYTES_MAX: Final = 20 << 20
_WINDOWS: Final = (
    "Add-Type -Assembly System.Windows.Forms; $i = [Windows.Forms.Clipboard]::GetImage(); if ($i) { $s = New-Object "
    "IO.MemoryStream; $i.Save($s, 'Png'); [Console]::OpenStandardOutput().Write($s.ToArray(), 0, $s.Length) }"
)
# Programs that write the picture of the clipboard as PNG, and the variable that has to be set for each to be of use.
_CLIPBOARDS: Final = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--no-newline", "--type", "image/png")),
    ("DISPLAY", ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ("", ("pngpaste", "-")),
    ("WSL_DISTRO_NAME", ("powershell.exe", "-NoProfile", "-Sta", "-Command", _WINDOWS)),
)


async def read_clipboard_image(env: Mapping[str, str]) -> bytes | None:
    """Return the picture that the clipboard has; None where there is none or no program can read it."""
    for variable, (program, *arguments) in _CLIPBOARDS:
        path = shutil.which(program, path=env.get("PATH"))
        if path is None or (variable and not env.get(variable)):
            continue
        data = await _output_of(path, *arguments)
        if data:
            return data
    return None


async def _output_of(program: str, *arguments: str) -> bytes:
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
    )
    assert process.stdout is not None
    data = b""
    try:
        async with asyncio.timeout(_CLIPBOARD_S):
            while len(data) <= _IMAGE_BYTES_MAX and (piece := await process.stdout.read(1 << 16)):
                data += piece
            await process.wait()
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return data if process.returncode == 0 else b""
