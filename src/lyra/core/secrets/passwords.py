"""Passwords that stand in plain words in a command line: `mysql -pX`, `curl -u ada:X`, `--password X`, `PGPASSWORD=X`.

`without_passwords(line)` puts `***` in their place. A word is one only by what stands before it: an option that is
called like a password, an option of a program that is known to take one (`_OF`), a variable that is called like one. It
is judged within one command, so that no command disappears behind a password, and a text in quotes is one word: what a
commit message says of `--password` stays. A variable (`$PASSWORD`) is no password, and the name of a user stays.
A net, as all of `redact` is: other programs have other options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.core.secrets.secret import MASK

__all__ = ["without_passwords"]

_BEFORE_OPERATOR: Final = r"(?=[;|&<>(){}`\n])"
_WORD: Final = r"(?:'[^']*'?|\"(?:[^\"\\]|\\.)*\"?|\\.|[^\s'\"\\])+"
_CALLED: Final = r"(?:password|passwd|passphrase|token|api[-_]?key|secret[-_]key|client[-_]secret)"
_NAMED: Final = rf"--?(?:[a-z0-9]+[-_])*{_CALLED}(=|\Z)"  # an option of whatever program
_VARIABLE: Final = r"[A-Z0-9_]*(?:PASSWORD|PASSWD|_PWD|TOKEN|SECRET|API_KEY|SECRET_KEY)="
# Another option, a variable, one that is masked, nothing at all.
_NOTHING: Final = r"['\"]{0,2}(?:[-$]|\*\*\*|\Z)"
# A line without any of these, in lower case, has none: most have not.
_MARKS: Final = r"pass|pwd|token|secret|api|mysql|mariadb|curl|redis|login|7z|zip"


class _Option(NamedTuple):
    """Takes a password: in its own word, or (`apart`) in the next one too; of `user:password` what is `after`."""

    words: tuple[str, ...]
    apart: bool = True
    after: str = ""


_MYSQL: Final = _Option(("-p",), apart=False)  # `-p NAME` asks for one, and names a database
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
    """The line with `***` for each password that its words give away; any other is as it was."""
    if not _compiled(_MARKS).search(line.lower()):
        return line
    return "".join(_hidden(command) for command in _compiled(_BEFORE_OPERATOR).split(line))


def _hidden(command: str) -> str:
    made, end = [], 0
    for start, stop in _passwords(command):
        made += [command[end:start], MASK]
        end = stop
    return "".join([*made, command[end:]])


def _passwords(command: str) -> Iterator[tuple[int, int]]:
    """Where each begins and ends."""
    own: _Option | None = None  # of the program that was named last
    awaited: _Option | None = None  # the word before was it, and this one is its value
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
    """What the word is to be read as, and how much of it comes before the value."""
    named = _compiled(_NAMED).match(word) or _compiled(_VARIABLE).match(word)
    if named is not None:
        return _Option((), apart=not named[0].endswith("=")), named.end()
    for each in own.words if own is not None else ():
        if word == each or (word.startswith(each) and not each.startswith("--")):
            return own, len(each)
        if word.startswith(f"{each}="):
            return own, len(each) + 1
    return None, 0


def _after(command: str, start: int, stop: int, option: _Option) -> int:
    """Past the name of a user; where there is only that, there is no password."""
    if not option.after:
        return start
    found = command.find(option.after, start, stop)
    return stop if found < 0 else found + 1


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    """When it is first needed: all of them cost a start-up milliseconds."""
    return re.compile(pattern)
