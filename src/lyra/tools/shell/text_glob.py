"""Globs over plain text: `*` is any run of characters, `?` is one, `\\*` is a star.

Matching is by pieces between the stars, leftmost first, so its cost is linear in the text for usual patterns; no text
of a user becomes a regular expression with repetition. A pattern that ends in ` *` also matches without
the argument (`git *` matches `git`).

`touches` is the test for denies: can the pattern match the text, whose rest after `UNKNOWN` is not known?
"""

from __future__ import annotations

import re
from typing import Final

UNKNOWN: Final = "\0"  # represents text that only the shell knows; no command can hold a NUL


class TextGlob:
    """One compiled pattern. `literal` has no wildcard; `total` matches everything."""

    __slots__ = ("_bare", "_head", "_pieces", "_searches", "literal", "prefix", "text", "total", "trailing", "word")

    def __init__(self, text: str) -> None:
        self.text = text
        self._pieces = _split(text)
        wild = any("?" in kinds for _, kinds in self._pieces)
        self.literal = len(self._pieces) == 1 and not wild
        self.total = len(self._pieces) > 1 and not any(piece for piece, _ in self._pieces)
        self.prefix = self._pieces[0][0]  # what any match starts with, except for `?`
        self.trailing = len(self._pieces) == 2 and not self._pieces[1][0] and not wild
        self._head = "" if "?" in self._pieces[0][1] else self.prefix
        self._bare = self.prefix[:-1] if self.trailing and self.prefix.endswith(" ") else None
        # The first word of any match, if the pattern fixes it: texts that begin with another word are not compared.
        self.word = self._head.partition(" ")[0] if self.literal or " " in self._head else ""
        self._searches = [_search(piece, kinds) for piece, kinds in self._pieces]

    def matches(self, text: str) -> bool:
        if not text.startswith(self._head):
            return text == self._bare
        if self.trailing:
            return True
        first, last = self._searches[0], self._searches[-1]
        if len(self._searches) == 1:
            return first.fullmatch(text) is not None
        began = first.match(text)
        if began is None:
            return False
        position = began.end()
        for search in self._searches[1:-1]:
            match = search.search(text, position)
            if match is None:
                return False
            position = match.end()
        length = len(self._pieces[-1][0])
        return len(text) - position >= length and last.fullmatch(text, len(text) - length) is not None

    def touches(self, text: str) -> bool:
        """Return whether some text matches that begins as this one does, up to what is not known in it."""
        if UNKNOWN not in text:
            return self.matches(text)
        known = text.partition(UNKNOWN)[0]
        piece, kinds = self._pieces[0]
        if len(self._pieces) == 1 and len(known) > len(piece):
            return False
        return all(kind == "?" or a == b for a, b, kind in zip(known, piece, kinds, strict=False))


def _split(text: str) -> list[tuple[str, str]]:
    """Return the pieces between stars; each with a mark for every character: `?` for a wildcard, else a space."""
    pieces: list[tuple[str, str]] = []
    piece = kinds = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\" and text[position + 1 : position + 2] in ("*", "?", "\\"):
            position += 1
            piece, kinds = piece + text[position], kinds + " "
        elif char == "*":
            pieces.append((piece, kinds))
            piece = kinds = ""
        else:
            piece, kinds = piece + char, kinds + ("?" if char == "?" else " ")
        position += 1
    return [*pieces, (piece, kinds)]


def _search(piece: str, kinds: str) -> re.Pattern[str]:
    parts = ("." if kind == "?" else re.escape(char) for char, kind in zip(piece, kinds, strict=True))
    return re.compile("".join(parts), re.DOTALL)


# Variables whose value is run, or decides what runs, when the command after them (or a later one) starts.

PATH: Final = "PATH"

_NAMES: Final = (
    "BASHOPTS BASH_ALIASES BASH_CMDS BASH_ENV"
    " BROWSER CARGO_HOME CDPATH COMPILER_PATH EDITOR ENV EXINIT FCEDIT FIGNORE GCC_EXEC_PREFIX"
    " GLOBIGNORE GREP GNUMAKEFLAGS HISTFILE HOME IFS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS LESSCLOSE LESSEDIT"
    " LESSOPEN MAKEFILES MAKEFLAGS MANOPT MANPAGER MANROFFOPT MYVIMRC NODE_OPTIONS NODE_PATH PAGER PERL5DB"
    " PERL5LIB PERL5OPT PROMPT_COMMAND PS0 PS1 PS2 PS4 PYTHONBREAKPOINT PYTHONHOME PYTHONINSPECT"
    " PYTHONSTARTUP PYTHONWARNINGS RSYNC_CONNECT_PROG RSYNC_RSH RUBYLIB RUBYOPT RUSTC"
    " RIPGREP_CONFIG_PATH RUSTC_WORKSPACE_WRAPPER RUSTC_WRAPPER R_PROFILE_USER SHELL SHELLOPTS SSH_ASKPASS SUDO_ASKPASS"
    " SUDO_EDITOR TAR_OPTIONS ZIPOPT GOFLAGS LUA_INIT SVN_SSH PYTEST_ADDOPTS PYTEST_PLUGINS"
    " VIMINIT VISUAL XDG_CONFIG_DIRS XDG_CONFIG_HOME ZDOTDIR _JAVA_OPTIONS"
    " CORECLR_PROFILER_PATH DEVELOPER_DIR DOTNET_HOST_PATH DOTNET_ROOT DOTNET_STARTUP_HOOKS SWIFT_EXEC ZIG_LIB_DIR"
)
_DECIDES: Final = frozenset(_NAMES.split())
_PROGRAM_NAMES: Final = frozenset({"CC", "CXX", "CPP", "LD", "AR", "AS", "FC", "RC", "YACC", "LEX", "TERMINAL"})
_DECIDES_STARTS: Final = (
    "GIT_",
    "FZF_",
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "npm_config_",
    "NPM_CONFIG_",
    "PIP_",
    "CARGO_TARGET_",
    "CARGO_BUILD_",
    "CARGO_ALIAS_",
)
_DECIDES_ENDS: Final = ("PAGER", "EDITOR", "ASKPASS", "BROWSER")
# MSBuild takes variables for properties, in any case: these are commands, programs or files of further settings.
_PROPERTIES: Final = re.compile(
    r"(?:pre|post)\w*event|\w+tool(?:exe|path)|custom(?:before|after)\w+|directorybuild\w+|msbuild\w*path\w*",
    re.IGNORECASE,
)
_DECIDES_NOTHING: Final = re.compile(r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|GIT_TERMINAL_PROMPT")
_CALCULATES: Final = frozenset(
    {"BASHPID", "EPOCHSECONDS", "HISTCMD", "LINENO", "OPTIND", "RANDOM", "SECONDS", "SRANDOM"}
)


def calculates(name: str) -> bool:
    """Return whether a shell does arithmetic with what is given to this variable, or to a place in it: `RANDOM`,
    `a[i]`."""
    return "[" in name or name in _CALCULATES


def is_relative_path(value: str) -> bool:
    """Return whether a value of PATH has a folder that depends on the current one: the line may have put a program
    there."""
    return not all(folder[:1] in ("/", "~", UNKNOWN) for folder in value.split(":"))


def names_program(name: str) -> bool:
    """Return whether the value of this variable is usually run as it is, such as that of `CC` by make."""
    return name in _PROGRAM_NAMES


def decides_what_runs(name: str) -> bool:
    """Return whether a variable of this name, or a place in it, makes some program run what its value says."""
    name = name.partition("[")[0]
    if name in _DECIDES:
        return True
    if name.endswith(_DECIDES_ENDS) or _PROPERTIES.fullmatch(name):
        return True
    return name.startswith(_DECIDES_STARTS) and _DECIDES_NOTHING.fullmatch(name) is None
