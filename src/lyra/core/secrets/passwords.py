"""Passwords in the words of a command line: `mysql -pX`, `curl -u ada:X`, `--password X`, `PGPASSWORD=X`.

`without_passwords(line)` puts `***` in their place. A word counts as a password only after an option with a name like
`--password`, after an option of a program that is known to take one (`_OF`), or after a variable with such a name. Each
command of the line is checked by itself, so that no command is hidden with a password, and a text in quotes is one
word: `--password` in a commit message stays. A variable (`$PASSWORD`) is no password, and the name of a user stays.
Like all of `redact` this finds common cases only: other programs have other options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.core.secrets.secret import MASK

_BEFORE_OPERATOR: Final = r"(?=[;|&<>(){}`\n])"
_WORD: Final = r"(?:'[^']*'?|\"(?:[^\"\\]|\\.)*\"?|\\.|[^\s'\"\\])+"
_CALLED: Final = r"(?:password|passwd|passphrase|token|api[-_]?key|secret[-_]key|client[-_]secret)"
_NAMED: Final = rf"--?(?:[a-z0-9]+[-_])*{_CALLED}(=|\Z)"  # an option of any program
_VARIABLE: Final = r"[A-Z0-9_]*(?:PASSWORD|PASSWD|_PWD|TOKEN|SECRET|API_KEY|SECRET_KEY)="
# Values that are no password: another option, a variable, a masked one, an empty one.
_NOTHING: Final = r"['\"]{0,2}(?:[-$]|\*\*\*|\Z)"
# A line without any of these, in lower case, has no password; most lines have none of them.
_MARKS: Final = r"pass|pwd|token|secret|api|mysql|mariadb|curl|redis|login|7z|zip"


class _Option(NamedTuple):
    """Options that take a password: in their own word or (`apart`) in the next; `after`: it follows this separator."""

    words: tuple[str, ...]
    apart: bool = True
    after: str = ""


_MYSQL: Final = _Option(("-p",), apart=False)  # `-p NAME` prompts for a password, and NAME is a database
_CURL: Final = _Option(("-u", "--user", "-U", "--proxy-user"), after=":")
_OF: Final[dict[str, _Option]] = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump"), _MYSQL),
    **dict.fromkeys(("7z", "7za", "7zr"), _Option(("-p",), apart=False)),
    **dict.fromkeys(("zip", "unzip"), _Option(("-P",))),
    "curl": _CURL,
    "sshpass": _Option(("-p",)),
    "redis-cli": _Option(("-a",)),
    "login": _Option(("-p",)),  # docker login, helm registry login
    "openssl": _Option(("pass:",), apart=False),
}


def without_passwords(line: str) -> str:
    """The line with `***` in place of each password; a line without one is unchanged."""
    if not _compiled(_MARKS).search(line.lower()):
        return line
    return "".join(_hidden(command) for command in _compiled(_BEFORE_OPERATOR).split(line))


def _hidden(command: str) -> str:
    pieces, end = [], 0
    for start, stop in _passwords(command):
        pieces += [command[end:start], MASK]
        end = stop
    return "".join([*pieces, command[end:]])


def _passwords(command: str) -> Iterator[tuple[int, int]]:
    """The start and end of each password."""
    own: _Option | None = None  # the option of the program named last
    awaited: _Option | None = None  # the option in the word before, whose value this word is
    for word in _compiled(_WORD).finditer(command):
        text, start = word[0], word.start()
        option, awaited = awaited, None
        if option is None:
            option, length = _option(text, own)
            if option is not None and length == len(text):
                awaited = option if option.apart else None
                continue
            start += length
        if option is None:
            own = _OF.get(text.rpartition("/")[2], own)
            continue
        start = _after(command, start, word.end(), option)
        if start < word.end() and not _compiled(_NOTHING).match(command, start, word.end()):
            yield start, word.end()


def _option(word: str, own: _Option | None) -> tuple[_Option | None, int]:
    """The password option in this word, if it is one, and how many characters come before the value."""
    named = _compiled(_NAMED).match(word) or _compiled(_VARIABLE).match(word)
    if named is not None:
        return _Option((), apart=not named[0].endswith("=")), named.end()
    for name in own.words if own is not None else ():
        if word == name or (word.startswith(name) and not name.startswith("--")):
            return own, len(name)
        if word.startswith(f"{name}="):
            return own, len(name) + 1
    return None, 0


def _after(command: str, start: int, stop: int, option: _Option) -> int:
    """The index after the user's name; `stop` where there is a name and no password."""
    if not option.after:
        return start
    separator = command.find(option.after, start, stop)
    return stop if separator < 0 else separator + 1


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: compiling all of them would cost milliseconds at start-up."""
    return re.compile(pattern)
