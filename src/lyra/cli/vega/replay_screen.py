"""The full screen of `vega replay`: keys in, a picture of the run out.

What a key does is a command of `cli.vega.replay`. `screen` is a function of how the run stands and of the size: it
gives exactly so many lines of exactly so many columns, with control characters of the program's texts made visible. The
terminal gets its own screen back at the end, however it ends. While something takes long, Ctrl-C stops that; otherwise
it ends the replay.
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
from unicodedata import combining, east_asian_width

from lyra.cli.render import printable, wants_colour
from lyra.errors import LyraError
from lyra.observe.timeline.step import token_count
from lyra.vega.replay.timeline import TimelineStep, brief

if TYPE_CHECKING:
    from lyra.cli.command_lines import CommandPrompt
    from lyra.vega.replay.player import Player


# What the keys do; the longest that fits is shown.
KEYS: Final = (
    "n step  b back  l line  L back line  c continue  r reverse  g goto  p process  : command  ? help  q quit",
    "n step b back l line L back-line c cont r rev g goto p proc : cmd ? help q quit",
    "n/b step l/L line c/r run g goto ? q",
    "n b l c r g p : ? q",
)
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
    def __init__(self, commands: CommandPrompt, player: Player) -> None:
        self._commands = commands
        self._player = player
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
            width, height = _size()
            colours = wants_colour(sys.stdout)
            lines = screen(self._player, width, height, colours=colours, message=printable(self._message))
            self._show(lines)
            key = self._key()
            if key is None:
                return
            if key and not self._on_key(key):
                return

    def _key(self) -> str | None:
        """Return the next key; "" when the window changed, None at the end of the input."""
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

    def _on_key(self, key: str) -> bool:
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
        player = self._player
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
            self._player.recover()
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

    def _page(self, lines: list[str]) -> bool:
        """Return an answer that needs more room, page by page, until a key is pressed."""
        while lines:
            width, height = _size()
            if any(len(line) > width for line in lines):
                lines = [piece for line in lines for piece in _wrap_line(line, width)]
            part, lines = lines[: height - 1], lines[height - 1 :]
            foot = "more: any key; q: back" if lines else "any key: back"
            rows = [fit_width(line, width) for line in part]
            rows += [" " * width] * (height - 1 - len(rows))
            self._show([*rows, fit_width(foot, width)])
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


def _wrap_line(line: str, width: int) -> list[str]:
    """Return a line in pieces that fit, between words where that is possible; what comes later is set in."""
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


# ---------------------------------------------------------------- picture

_TWO_COLUMNS: Final = 70  # columns from which there is room for panes beside each other
_LOOKED: Final = 2_000  # characters of a line that may be shown
_STYLES: Final = {"title": "7", "here": "1", "error": "31", "dim": "2", "head": "36", "now": "1;33"}

Line = tuple[str, str]  # a text and its style


def screen(player: Player, width: int, height: int, *, colours: bool, message: str = "") -> list[str]:
    """`height` lines of `width` columns."""
    width, height = max(width, 8), max(height, 4)
    body = height - 3
    lines = _wide(player, width, body) if width >= _TWO_COLUMNS else _narrow(player, width, body)
    lines = [*lines[:body], *[[("", "")]] * (body - len(lines[:body]))]
    keys = next((keys for keys in KEYS if len(keys) <= width), KEYS[-1])
    rows = [[(_title(player, width), "title")], *lines, [(message, "now")], [(keys, "dim")]]
    return [_paint_row(row, width, colours=colours) for row in rows]


def _paint_row(row: list[Line], width: int, *, colours: bool) -> str:
    """One row: its parts beside each other; the last one takes what is left."""
    text, used = "", 0
    for index, (part, style) in enumerate(row):
        room = width - used if index == len(row) - 1 else min(_width(part), width - used)
        slot = fit_width(part, room)
        used += room
        code = _STYLES.get(style) if colours else None
        text += f"\x1b[{code}m{slot}\x1b[0m" if code and slot.strip() else slot
    return text


# ---------------------------------------------------------------- panes
def _wide(player: Player, width: int, height: int) -> list[list[Line]]:
    top = max(3, height * 55 // 100)
    left = width * 58 // 100
    right = width - left - 1
    source = _pane("source", _source(player, top - 1), top, left)
    share = max(2, (top + 1) // 2)
    beside = [
        *_pane("variables", _variables(player, right), share, right),
        *_pane("processes", _processes(player, top - share - 1), top - share, right),
    ]
    rows = [
        [(fit_width(text, left), one_style), ("│", "dim"), (other, other_style)]
        for (text, one_style), (other, other_style) in zip(source, beside, strict=False)
    ]
    return [*rows, *_lower(player, width, height - top)]


def _narrow(player: Player, width: int, height: int) -> list[list[Line]]:
    source = max(3, height * 35 // 100)
    variables = max(2, height * 20 // 100)
    rows = [
        *_pane("source", _source(player, source - 1), source, width),
        *_pane("variables", _variables(player, width), variables, width),
    ]
    return [*([row] for row in rows), *_lower(player, width, height - len(rows))]


def _lower(player: Player, width: int, height: int) -> list[list[Line]]:
    effects = max(2, (height * 6 + 9) // 10)
    rows = [
        *_pane("effects", _effects(player, effects - 1), effects, width),
        *_pane("output", _output(player, height - effects - 1), height - effects, width),
    ]
    return [[row] for row in rows]


def _pane(name: str, lines: list[Line], height: int, width: int) -> list[Line]:
    """Return a rule with a name, and so many lines below it."""
    if height <= 0:
        return []
    rule = f"── {name} " + "─" * max(0, width - len(name) - 4)
    shown = lines[: height - 1]
    return [(rule, "head"), *shown, *[("", "")] * (height - 1 - len(shown))]


def _title(player: Player, width: int) -> str:
    timeline = player.timeline
    file, line = player.place()
    spent = timeline.sum_costs(player.position)
    place = f"{os.path.basename(file)}:{line}" if line else "-"
    position = f"{player.position}/{len(timeline)}"
    if player.inside is not None:
        position += f" +{player.inside}"
    parts = [f" {timeline.run_id}", position, player.in_view, place, f"${spent.get('usd', 0) / 1_000_000:.4f}"]
    parts += [f"{token_count(spent)} tokens", timeline.state] if width >= _TWO_COLUMNS else []
    return "  ".join(parts)


def _source(player: Player, height: int) -> list[Line]:
    file, line = player.place()
    if not line:
        file, line = player.timeline.program.name, 0
    text = player.sources.get(file)
    if text is None:
        return [(f"{os.path.basename(file)}:{line}", "here"), ("the run keeps no source of this file", "dim")]
    lines = text.split("\n")
    first = max(1, min(line - height // 2, len(lines) - height + 1))
    rows = []
    for number in range(first, min(first + height, len(lines) + 1)):
        mark, style = (">", "now") if number == line else (" ", "")
        rows.append((f"{mark}{number:4} {_printable(lines[number - 1])}", style))
    return rows


def _variables(player: Player, width: int) -> list[Line]:
    """Return the variables of the process in view, then its messages."""
    program = player.timeline.program
    own = player.locals()
    rows = [(f"{name} = {_printable(brief(value, width * 2, program))}", "") for name, value in own.items()]
    rows += [
        (f"{name} = {_printable(brief(value, width * 2, program))}", "dim")
        for name, value in player.view().items()
        if name not in own
    ]
    mailbox = player.mailbox(player.in_view)
    rows = [
        (f"mailbox {index}: {_printable(brief(message, width, program))}", "here")
        for index, message in enumerate(mailbox[:3])
    ] + rows
    return rows or [("none", "dim")]


def _processes(player: Player, height: int) -> list[Line]:
    """Return the processes around the one in view, in the order in which they began."""
    pids, here = player.pids, player.in_view
    index = pids.index(here) if here in pids else 0
    first = max(0, min(index - height // 2, len(pids) - height))
    rows = []
    for pid in pids[first : first + height]:
        waits, ended, is_over = player.state(pid)
        state = (f"ended {ended}" if ended else "ended") if is_over else f"at {waits}" if waits else "running"
        mark, style = (">", "now") if pid == here else (" ", "dim" if is_over else "")
        rows.append((f"{mark}{pid} {player.facts(pid).function}: {_printable(state)}", style))
    for pid in player.agents[: max(0, height - len(rows))]:
        agent = player.agent(pid)
        if agent is not None:
            rows.append((f" {pid} agent {agent.name}: {_printable(agent.state)}", "dim"))
    return rows or [("none has begun", "dim")]


def _effects(player: Player, height: int) -> list[Line]:
    steps, here = player.timeline.steps, player.position
    first = max(0, min(here - height // 2, len(steps) - height))
    rows = [_effect(step, here) for step in steps[first : first + height]]
    if here >= len(steps) and len(rows) == height:
        rows = [*rows[1:], (f"> the end: {player.timeline.state}", "now")]
    elif here >= len(steps):
        rows.append((f"> the end: {player.timeline.state}", "now"))
    return rows


def _effect(step: TimelineStep, here: int) -> Line:
    came = f" → error {step.error}" if step.error else f" → {step.result}" if step.result else ""
    cost = f" ${step.micro_usd / 1_000_000:.4f}" if step.micro_usd else ""
    mark = ">" if step.number == here else " "
    style = "now" if step.number == here else "error" if step.error else "dim" if step.number > here else ""
    return f"{mark}{step.number:4} {step.pid} {_printable(step.what)}{_printable(came)}{cost}", style


def _output(player: Player, height: int) -> list[Line]:
    return [(_printable(line), "") for line in player.timeline.output(player.position, max(height, 1))]


# ---------------------------------------------------------------- columns
def _printable(text: str) -> str:
    """One line that does nothing to a terminal."""
    text = text[:_LOOKED].replace("\t", "    ").replace("\n", "⏎")
    return text if text.isprintable() else "".join(char if char.isprintable() else "·" for char in text)


def _columns(char: str) -> int:
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_columns, text))


def fit_width(text: str, width: int) -> str:
    """Exactly `width` columns: cut with an ellipsis, or filled up."""
    if width <= 0:
        return ""
    if _width(text) <= width:
        return text + " " * (width - _width(text))
    kept, used = [], 0
    for char in text:
        if used + _columns(char) > width - 1:
            break
        kept.append(char)
        used += _columns(char)
    return "".join(kept) + "…" + " " * (width - used - 1)
