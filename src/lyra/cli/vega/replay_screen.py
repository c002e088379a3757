"""The full screen of `vega replay`: keys in, a picture of the run out.

What is drawn is `lyra.vega.replay.view`'s; what a key does is a command of `replay_commands`. The terminal gets its own
screen back at the end, however it ends. While something takes long, Ctrl-C stops that; otherwise it ends the replay.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.cli.render import printable, wants_colour
from lyra.errors import LyraError
from lyra.vega.replay.view import KEYS, fitted, screen

if TYPE_CHECKING:
    from lyra.cli.vega.replay_commands import Commands


# What each key says. A key that ends with `…` asks for the rest.
_KEYS: Final = {
    "n": "step",
    "\x1b[C": "step",
    "b": "back",
    "\x1b[D": "back",
    "l": "line",
    "\x1b[B": "line",
    "L": "back line",
    "\x1b[A": "back line",
    "e": "next effect",
    "c": "continue",
    "r": "reverse-continue",
    "\x1b[6~": "step 10",
    "\x1b[5~": "back 10",
    "\x1b[H": "goto 0",
    "\x1b[F": "goto end",
    "g": "goto …",
    ":": "…",
    "?": "help",
    "q": "quit",
}
_HELP: Final = (
    *(f"  {part}" for part in KEYS[0].split("  ")),
    "  arrows: back and step, line and back line; page keys: ten steps; home, end; e: next effect",
    "",
    "behind the key `:` comes a command:",
)
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_QUIET: Final = frozenset({"step", "back", "line", "next", "goto"})  # what the panes show by themselves
_SHOWN: Final = frozenset({"n", "b", "s", "l", "g"})


class Screen:
    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._message = ""
        self._typed: str | None = None  # a line that is being typed, behind its prompt
        self._prompt = ""
        self._in = sys.stdin.fileno()
        self._bytes = b""
        self._resized = False

    def run(self) -> None:
        """Read keys until one of them quits, then restore the terminal."""
        before = termios.tcgetattr(self._in)
        resized: Any = signal.signal(signal.SIGWINCH, self._resize)
        sys.stdout.write(_ENTER)
        try:
            tty.setcbreak(self._in)
            self._loop()
        finally:
            signal.signal(signal.SIGWINCH, resized)
            with suppress(OSError):
                sys.stdout.write(_LEAVE)
                sys.stdout.flush()
            with suppress(termios.error):
                termios.tcsetattr(self._in, termios.TCSADRAIN, before)

    def _resize(self, *_: object) -> None:
        self._resized = True

    def _loop(self) -> None:
        while True:
            self._draw()
            key = self._key()
            if key is None:
                return
            if key and not self._pressed(key):
                return

    # ------------------------------------------------------------ keys

    def _key(self) -> str | None:
        """The next key; "" when the window changed, None at the end of the input."""
        while not self._bytes:
            if self._resized:
                self._resized = False
                return ""
            try:
                ready, _, _ = select.select([self._in], [], [], 0.2)
            except InterruptedError:
                continue
            if ready:
                data = os.read(self._in, 1024)
                if not data:
                    return None
                self._bytes += data
        text = self._bytes.decode(errors="replace")
        for known in sorted(_KEYS, key=len, reverse=True):
            if len(known) > 1 and text.startswith(known):
                self._bytes = self._bytes[len(known) :]
                return known
        char = text[0]
        if char == "\x1b":  # a key that means nothing here
            self._bytes = b""
            return "\x1b"
        self._bytes = self._bytes[len(char.encode()) :] if char != "\ufffd" else self._bytes[1:]
        return char

    def _pressed(self, key: str) -> bool:
        if self._typed is not None:
            return self._type(key)
        if key == "\x04":
            return False
        if key == "p":
            return self._do(f"process {self._next_process()}")
        command = _KEYS.get(key)
        if command is None:
            self._message = "" if key in "\n\x1b" else f"no key {printable(key)}; ? shows them"
            return True
        if command.endswith("…"):
            self._prompt, self._typed = command[:-1], ""
            self._message = f"{command[:-1] or ':'}"
            return True
        return self._do(command)

    def _type(self, key: str) -> bool:
        assert self._typed is not None
        if key in ("\n", "\r"):
            line, self._typed = self._prompt + self._typed, None
            self._message = ""
            return self._do(line) if line.strip() else True
        if key in ("\x1b", "\x04"):
            self._typed, self._message = None, ""
            return True
        if key in ("\x7f", "\b"):
            self._typed = self._typed[:-1]
        elif key.isprintable():
            self._typed += key
        self._message = f"{self._prompt or ':'}{self._typed}"
        return True

    def _next_process(self) -> str:
        player = self._commands.player
        pids = player.pids
        if not pids:
            return "-"
        index = pids.index(player.in_view) if player.in_view in pids else -1
        return pids[(index + 1) % len(pids)]

    def _do(self, line: str) -> bool:
        """One command; False ends the screen."""
        try:
            result = self._commands.do(line)
        except LyraError as error:
            self._message = printable(f"{error.message}" + (f" ({error.hint})" if error.hint else ""))
            return True
        except KeyboardInterrupt:
            self._commands.player.recover()
            self._message = "stopped"
            return True
        if result.is_end:
            return False
        word = line.split(maxsplit=1)[0]
        lines = [printable(text_line) for text_line in result.text.split("\n")]
        if word in _QUIET or word in _SHOWN:
            self._message = ""
        elif word in ("process", "continue", "reverse-continue", "c", "rc", "r") or len(lines) == 1:
            self._message = lines[0]
        else:
            return self._page([*_HELP, *lines] if word == "help" else lines)
        return True

    # ------------------------------------------------------------ drawing

    def _draw(self) -> None:
        width, height = _size()
        colours = wants_colour(sys.stdout)
        lines = screen(self._commands.player, width, height, colours=colours, message=printable(self._message))
        self._show(lines)

    def _page(self, lines: list[str]) -> bool:
        """An answer that needs more room, page by page, until a key is pressed."""
        while lines:
            width, height = _size()
            if any(len(line) > width for line in lines):
                lines = [piece for line in lines for piece in _broken(line, width)]
            part, lines = lines[: height - 1], lines[height - 1 :]
            foot = "more: any key; q: back" if lines else "any key: back"
            rows = [fitted(line, width) for line in part]
            rows += [" " * width] * (height - 1 - len(rows))
            self._show([*rows, fitted(foot, width)])
            key = self._key()
            while key == "":
                key = self._key()
            if key is None:
                return False
            if key == "q":
                break
        self._message = ""
        return True

    @staticmethod
    def _show(lines: list[str]) -> None:
        sys.stdout.write(_HOME + "\r\n".join(lines))
        sys.stdout.flush()


def _broken(line: str, width: int) -> list[str]:
    """A line in pieces that fit, between words where that is possible; what comes later is set in."""
    pieces, lead = [], ""
    while len(lead + line) > width:
        room = width - len(lead)
        cut = line.rfind(" ", room // 2, room)
        cut = room if cut < 0 else cut
        pieces.append(lead + line[:cut])
        line, lead = line[cut:].lstrip(), " " * min(4, width // 4)
    return [*pieces, lead + line]


def _size() -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return columns or 80, rows or 24
