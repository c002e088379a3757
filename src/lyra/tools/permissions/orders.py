"""Programs that take orders from their input: `python <<EOF`, `at now <<< 'rm x'`, `sqlite3 db < <(…)`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from lyra.core.code import starts_programs
from lyra.core.programs import language_of
from lyra.tools.permissions.inner import Inner, script_in
from lyra.tools.permissions.shell import Command, Word
from lyra.tools.permissions.text_glob import UNKNOWN

__all__ = ["TAKES_ORDERS", "orders_of"]

# Programs that take orders from their input, in a language of their own.
TAKES_ORDERS: Final = frozenset(
    {
        *("ed", "ex", "vi", "vim", "tclsh", "expect", "sqlite3", "m4", "dc", "gdb", "crontab", "python", "pypy"),
        *("perl", "ruby", "node", "php", "lua", "psql", "emacs", "at", "batch", "make", "newgrp", "irb", "wish"),
        *("mysql", "mariadb", "ftp", "lftp", "sftp", "telnet", "mail", "mailx", "R", "julia", "ghci", "gnuplot", "bc"),
    }
)
_ORDERS: Final = re.compile(r"system|popen|exec|spawn|shell|!|`|syscmd|edit|load|open|source|eval|\.s[yh]")


def orders_of(words: list[Word], name: str, command: Command) -> Iterator[Inner]:
    """Code from the input of a program, or from a file that is made up on the way."""
    for word in words:
        if word.expands and word.raw.startswith(("<(", ">(")):
            yield Inner(doubt=f"{name!r} gets a file that only the shell knows")
    texts = command.documents
    for _, operator, target in command.redirects:
        if operator == "<<<":
            texts = [*texts, target.text]
    plain = name in ("newgrp", "at", "batch")
    for text in texts:
        if plain:
            yield from script_in(text)
        elif UNKNOWN in text or name in ("make", "crontab") or _runs_orders(text, name):
            yield Inner(doubt=f"{name!r} may run what it is given")


def _runs_orders(text: str, name: str) -> bool:
    language = language_of(name)
    return starts_programs(text, language) if language else _ORDERS.search(text) is not None
