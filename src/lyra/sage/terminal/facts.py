"""What a terminal can show, read once from the environment and the streams."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple, TextIO

from lyra.sage.terminal.text.styled_lines import ASCII_MARKS, MARKS, Marks, exact

COLUMNS_MAX: Final = 110  # lines are not set wider than this, so that figures stay near what they belong to
_COLUMNS_MIN: Final = 20
_COLUMNS_USUAL: Final = 80
_ROWS_USUAL: Final = 24
_NO_REFLOW: Final = ("linux", "vt", "screen", "ansi")


class TerminalFacts(NamedTuple):
    plain: bool  # only whole lines: no spinner, no cursor movement
    colour: bool
    unicode: bool
    reflows: bool  # wraps what is on the screen anew when it gets narrower
    vi_keys: bool = False  # the prompt is edited as in vi
    notify: str = "off"  # how a person is told that something waits: `bell` or `desktop`

    @classmethod
    def read(cls, stdin: TextIO, stdout: TextIO, env: Mapping[str, str] | None = None) -> TerminalFacts:
        env = os.environ if env is None else env
        term = env.get("TERM", "dumb") or "dumb"
        is_terminal = _is_terminal(stdin) and _is_terminal(stdout)
        plain = not is_terminal or term == "dumb" or bool(env.get("ACCESSIBLE"))
        colour = _is_terminal(stdout) and term != "dumb" and not env.get("NO_COLOR")
        return cls(plain, colour, _is_utf8(env), _reflows(term, env))

    @property
    def marks(self) -> Marks:
        return MARKS if self.unicode else ASCII_MARKS


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # it is closed, or replaced
        return False


def _is_utf8(env: Mapping[str, str]) -> bool:
    """Return whether the locale is UTF-8: by its variables, as Python writes UTF-8 in the locale C, too."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    return locale.lower().replace("-", "").rpartition(".")[2].partition("@")[0] == "utf8"


def _reflows(term: str, env: Mapping[str, str]) -> bool:
    if env.get("TMUX"):
        return True
    return not env.get("XTERM_VERSION") and not term.startswith(_NO_REFLOW)


def alert_sequence(notify: str, text: str) -> str:
    """Return what rings the bell or sends a notification; nothing where neither is wanted."""
    if notify == "desktop":
        return f"\x1b]9;{' '.join(exact(text).split())}\x07"  # read by iTerm2, WezTerm, kitty, Ghostty and others
    return "\a" if notify == "bell" else ""


def size_of(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal behind a stream; the usual ones where there is none."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _COLUMNS_USUAL, _ROWS_USUAL
    return max(_COLUMNS_MIN, size.columns or _COLUMNS_USUAL), size.lines or _ROWS_USUAL
