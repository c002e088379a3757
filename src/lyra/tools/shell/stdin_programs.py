"""Programs that take orders from their input: `python <<EOF`, `at now <<< 'rm x'`, `echo … | sqlite3 db`.

A text of the line itself is read, where there is a reader for its language; whatever else comes in is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lyra.core.commands.embedded_code import starts_programs
from lyra.core.commands.option_reach import ProgramOptions, own_words, words_of
from lyra.core.commands.options import OPTIONS
from lyra.core.commands.programs import language_of
from lyra.tools.shell.grammar import Command, Script, Word
from lyra.tools.shell.nested import Inner, is_input, own_input, script_in
from lyra.tools.shell.text_glob import UNKNOWN

__all__ = ["TAKES_ORDERS", "orders_of", "takes_input"]

TAKES_ORDERS: Final = frozenset(
    {
        *("ed", "ex", "vi", "vim", "tclsh", "expect", "sqlite3", "m4", "dc", "gdb", "crontab", "python", "pypy"),
        *("perl", "ruby", "node", "php", "lua", "psql", "emacs", "at", "batch", "make", "newgrp", "irb", "wish"),
        *("mysql", "mariadb", "ftp", "lftp", "sftp", "telnet", "mail", "mailx", "R", "julia", "ghci", "gnuplot"),
    }
)
_SHELL_ORDERS: Final = frozenset({"newgrp", "at", "batch"})
_ASKS: Final = frozenset({"--version", "--help"})
_ASKS_SHORT: Final = {
    **dict.fromkeys(("perl", "node", "php", "ruby", "lua"), frozenset({"-v", "-V", "-h"})),
    **dict.fromkeys(("python", "pypy"), frozenset({"-V", "-VV", "-h"})),
}
_GOES_ON: Final = {  # reads its input though it was given code
    **dict.fromkeys(("python", "pypy", "node", "lua", "julia"), "i"),
    "perl": "d",
    "php": "a",
}
_LETTERS: Final = frozenset({"mail", "mailx"})
_SQLITE_FLAGS: Final = words_of(
    "-header -noheader -csv -json -batch -line -column -html -list -readonly -bail -echo -box -markdown -table -quote"
    " -tabs -ascii"
)


def orders_of(words: list[Word], name: str, command: Command, script: Script) -> Iterator[Inner]:
    """Code from the input of a program, or from a file that is made up on the way."""
    for word in words:
        if word.expands and word.raw.startswith(("<(", ">(")):
            yield Inner(doubt=f"{name!r} gets a file that only the shell knows")
    texts = command.documents
    for _, operator, target in command.redirects:
        if operator == "<<<":
            texts = [*texts, target.text]
    for text in texts:
        if name in _SHELL_ORDERS:
            yield from script_in(text)
        elif name in _LETTERS and not _reads_letters([word.text for word in words]):
            continue
        elif UNKNOWN in text or starts_programs(text, language_of(name)):
            yield Inner(doubt=f"{name!r} may run what it is given")
    if (command.fed or (script.piped and script.defines)) and takes_input(words, name, command):
        yield Inner(doubt=f"it pipes into {name!r}")
    script.hungry.append((command, name, words))


def takes_input(words: list[Word], name: str, command: Command) -> bool:
    """Whether it takes orders from an input that it does not name itself."""
    return not own_input(command) and _reads_orders(name, [word.text for word in words])


def _reads_orders(name: str, words: Sequence[str]) -> bool:
    """Whether this call takes from its input what it is to do."""
    if len(words) == 2 and (words[1] in _ASKS or words[1] in _ASKS_SHORT.get(name, ())):
        return False
    reads = _READS.get(name)
    if reads is not None:
        return reads(words)
    options = OPTIONS.get(name)
    return options is None or not options.leading or _reads_code(name, words, options)


def _reads_code(name: str, words: Sequence[str], options: ProgramOptions) -> bool:
    """A language: no file and no code is named, or the file is the input."""
    last = own_words(words, options)
    own = words[1:last]
    if any(word[:1] == UNKNOWN for word in own):
        return True
    coded = options.code + options.unread + ("m" if name in ("python", "pypy") else "")
    letters = _letters(own, coded, options)
    if any(letter in letters for letter in _GOES_ON.get(name, "")):
        return True
    if last < len(words) and words[last] != "--":
        return words[last] == "-" or is_input(words[last])
    given = any(letter in coded for letter in letters)
    long = options.long_code | options.long_unread
    return not given and not any(word[2:].partition("=")[0] in long for word in own if word[:2] == "--")


def _letters(words: Sequence[str], coded: str, options: ProgramOptions) -> str:
    """The short options of a call, without their values."""
    ends = coded + options.valued + options.runs + options.wide
    found, at = "", 0
    while at < len(words):
        word = words[at]
        at += 1
        if word[:2] == "--":
            at += "=" not in word  # of an option that nobody knows the next word may be the value
            continue
        for place, letter in enumerate(word[1:], 2):
            found += letter
            if letter in ends:
                at += place == len(word)
                break
    return found


def _reads_sql(words: Sequence[str]) -> bool:
    options = [word for word in words[1:] if word[:1] == "-"]
    return len(words) - len(options) < 3 or not _SQLITE_FLAGS.issuperset(options)


def _reads_queries(words: Sequence[str]) -> bool:
    """psql, mysql: unless a query is given, or a list is asked for."""
    given = any(word[:2] in ("-c", "-e", "-l") or word.startswith(("--com", "--exe", "--list")) for word in words[1:])
    return not given or any(is_input(word) or word[-1:] == "-" for word in words[1:])


def _reads_rules(words: Sequence[str]) -> bool:
    """make: only where its file is the input."""
    return any(word[-1:] == "-" or ("/" in word and is_input(word)) for word in words[1:])


def _reads_jobs(words: Sequence[str]) -> bool:
    return not any(word in ("-l", "-r") for word in words[1:])


def _reads_letters(words: Sequence[str]) -> bool:
    """mail: what comes in is the text of a letter, unless it is told to look for orders in it."""
    return any(word[:2] == "-~" or word[:1] == UNKNOWN for word in words[1:])


_READS: Final[dict[str, Callable[[Sequence[str]], bool]]] = {
    "sqlite3": _reads_sql,
    **dict.fromkeys(("psql", "mysql", "mariadb"), _reads_queries),
    "make": _reads_rules,
    "crontab": _reads_jobs,
    **dict.fromkeys(_LETTERS, _reads_letters),
}
