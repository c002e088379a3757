"""LiveScreen: the live block at the end of the terminal's output, and finished lines printed above it.

The block has what runs, or a question; then the status line; then the prompt. It is drawn again when a key was pressed,
and otherwise at most `_FRAMES_PER_S` times a second. Finished lines are written above it and never touched again, so
scrollback, copying and searching are the terminal's own. Decides nothing: keys go to `keys`, lines come from
`conversation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.defaults import create_input
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.containers import Container, VerticalAlign
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.utils import get_cwidth

from lyra.sage.terminal.facts import COLUMNS_MAX, TerminalFacts, alert_sequence, size_of
from lyra.sage.terminal.text.styled_lines import Line, clip, encode_line, for_output, inline_style

_FRAMES_PER_S: Final = 20
_SPINNER_S: Final = 0.1
_KEPT_ROWS: Final = 4  # of the terminal, for the status line and the prompt
_ESCAPE_S: Final = 0.05  # a lone escape is the key, and not the start of a sequence, after this


class LiveScreen:
    """The terminal while a session is open."""

    def __init__(self, facts: TerminalFacts) -> None:
        self.facts = facts
        self.output = HeldOutput(sys.stdout, os.environ.get("TERM", ""))
        self._app: Application[None] | None = None
        self._live: Callable[[int, int], list[Line]] = lambda _width, _rows: []
        self._status: Callable[[int], Line] = lambda _width: []
        self._is_busy: Callable[[], bool] = lambda: False
        self._closed: Callable[[], None] = lambda: None
        self._is_dirty = asyncio.Event()

    # ------------------------------------------------------------ paper
    @property
    def width(self) -> int:
        return min(COLUMNS_MAX, self.output.get_size().columns - 1)

    def show(self, lines: Sequence[Line]) -> None:
        colour, unicode = self.facts.colour, self.facts.unicode
        text = "".join(f"{encode_line(line, colour=colour, unicode=unicode)}\r\n" for line in lines)
        if self._app is None or not self._app.is_running:
            self.output.write_raw(text)
            self.output.flush()
            return
        with self.output.hold():
            self._app.renderer.erase()
            self.output.write_raw(text)
            self._app._redraw()

    def mark_changed(self) -> None:
        self._is_dirty.set()

    def alert(self, text: str) -> None:
        self.output.write_raw(alert_sequence(self.facts.notify, text))
        self.output.flush()

    # ------------------------------------------------------------ the live block
    def style(self, name: str) -> str:
        return inline_style(name, colour=self.facts.colour)

    def connect(
        self,
        live: Callable[[int, int], list[Line]],
        status: Callable[[int], Line],
        prompt: Container,
        focus: Window,
        keys: KeyBindingsBase,
        is_busy: Callable[[], bool],
        closed: Callable[[], None],
    ) -> None:
        """Say what the block shows, and what to do when the terminal is closed; before `run`."""
        self._live, self._status, self._is_busy, self._closed = live, status, is_busy, closed
        above = Window(FormattedTextControl(self._block), dont_extend_height=True, wrap_lines=False)
        layout = Layout(HSplit([above, prompt], align=VerticalAlign.TOP), focused_element=focus)
        app: Application[None] = Application(
            layout=layout,
            key_bindings=keys,
            include_default_pygments_style=False,
            color_depth=None if self.facts.colour else ColorDepth.DEPTH_1_BIT,
            erase_when_done=True,
            max_render_postpone_time=0,
            terminal_size_polling_interval=None,  # a signal tells of a new size
            input=create_input(sys.stdin),
            output=self.output,
            editing_mode=EditingMode.VI if self.facts.vi_keys else EditingMode.EMACS,
        )
        app.ttimeoutlen = app.timeoutlen = _ESCAPE_S
        app._on_resize = self._redraw_at_new_size  # type: ignore[method-assign]  # a narrower terminal wraps what is on it
        self._app = app

    def _block(self) -> StyleAndTextTuples:
        size = self.output.get_size()
        rows = max(1, size.rows - _KEPT_ROWS - 4)
        lines: list[Line] = self._live(self.width, rows)
        status = self._status(self.width)
        shown: list[Line] = [*lines, [], status]
        fragments: StyleAndTextTuples = []
        for number, line in enumerate(shown):
            if number:
                fragments.append(("", "\n"))
            for style, text in clip(line, size.columns - 1, self.facts.marks.ellipsis):
                fragments.append((self.style(style), for_output(text, unicode=self.facts.unicode)))
        return fragments

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Show the screen until `work` has ended."""
        assert self._app is not None
        app = self._app
        async with asyncio.TaskGroup() as group:
            frames = group.create_task(self._draw_frames())
            shown = group.create_task(self._read_keys(app))
            try:
                await work()
            finally:
                if app.is_running and not app.is_done:
                    app.exit()
                await asyncio.wait([shown])
                frames.cancel()

    async def _read_keys(self, app: Application[None]) -> None:
        try:
            await app.run_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:  # the terminal was closed
            self._closed()

    async def _draw_frames(self) -> None:
        """Draw what has changed; while something runs also its time, a few times a second."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SPINNER_S if self._is_busy() else None):
                    await self._is_dirty.wait()
            self._is_dirty.clear()
            self.redraw()
            await asyncio.sleep(1 / _FRAMES_PER_S)

    def redraw(self) -> None:
        app = self._app
        if app is None or not app.is_running:
            return
        renderer = app.renderer
        before = renderer._last_screen.height if renderer._last_screen is not None else 0
        wanted = app.layout.container.preferred_height(*self._columns_rows()).preferred
        if before > wanted:  # the block got smaller: without erasing it, its last lines would stay as blank ones
            with self.output.hold():
                renderer.erase()
                app._redraw()
        else:
            app.invalidate()

    def _columns_rows(self) -> tuple[int, int]:
        size = self.output.get_size()
        return size.columns, size.rows

    def clear(self) -> None:
        if self._app is not None:
            self._app.renderer.clear()
            self._app._redraw()

    def _redraw_at_new_size(self) -> None:
        assert self._app is not None
        renderer = self._app.renderer
        with self.output.hold():
            if self.facts.reflows:
                self.output.cursor_up(_rows_more(renderer, self.output.get_size().columns))
            renderer.erase(leave_alternate_screen=False)
            self._app._redraw()


def _rows_more(renderer: Renderer, columns: int) -> int:
    """Return how many rows the lines above the cursor take more than before, now that the terminal has so many
    columns."""
    screen, size = renderer._last_screen, renderer._last_size
    if screen is None or size is None or columns >= size.columns:
        return 0
    more = 0
    for number in range(renderer._cursor_pos.y):
        cells = screen.data_buffer[number]
        text = "".join(cells[column].char for column in range(max(cells, default=-1) + 1)).rstrip()
        more += max(0, -(-get_cwidth(text) // columns) - 1)
    return more


# HeldOutput: the terminal's output, of which several steps can be written in one go.
class HeldOutput(Vt100_Output):
    def __init__(self, stdout: TextIO, term: str) -> None:
        def get_size() -> Size:
            columns, rows = size_of(stdout)
            return Size(rows=rows, columns=columns)

        super().__init__(stdout, get_size, term=term, enable_cpr=False, enable_bell=False)
        self._held = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Write nothing until the end of the block, then everything."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self.flush()

    def flush(self) -> None:
        if not self._held:
            super().flush()
