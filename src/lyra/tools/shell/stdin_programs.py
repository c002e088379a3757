"""Programs that run what they read from standard input: `python <<EOF`, `at now <<< 'rm x'`, `echo … | sqlite3 db`.

A text within the line is searched for commands, if its language is known; any other input counts as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lyra.core.commands.option_reach import ProgramOptions, count_own_words, starts_programs, words_of
from lyra.core.commands.options import OPTIONS
from lyra.core.commands.programs import language_of
from lyra.tools.shell.grammar import ShellCommand, ShellScript, Word
from lyra.tools.shell.shells import Nested, has_own_input, is_input, script_in
from lyra.tools.shell.text_glob import UNKNOWN

STDIN_PROGRAMS: Final = frozenset(
    {
        *("ed", "ex", "vi", "vim", "tclsh", "expect", "sqlite3", "m4", "dc", "gdb", "crontab", "python", "pypy"),
        *("perl", "ruby", "node", "php", "lua", "psql", "emacs", "at", "batch", "make", "newgrp", "irb", "wish"),
        *("mysql", "mariadb", "ftp", "lftp", "sftp", "telnet", "mail", "mailx", "R", "julia", "ghci", "gnuplot"),
        *("swift", "dotnet"),
    }
)
_SHELL_STDIN: Final = frozenset({"newgrp", "at", "batch"})
_INFO: Final = frozenset({"--version", "--help"})
_INFO_SHORT: Final = {
    **dict.fromkeys(("perl", "node", "php", "ruby", "lua"), frozenset({"-v", "-V", "-h"})),
    **dict.fromkeys(("python", "pypy"), frozenset({"-V", "-VV", "-h"})),
}
_INTERACTIVE: Final = {  # these options make it read its input though code is given
    **dict.fromkeys(("python", "pypy", "node", "lua", "julia"), "i"),
    "perl": "d",
    "php": "a",
}
_MAILERS: Final = frozenset({"mail", "mailx"})
_SQLITE_FLAGS: Final = words_of(
    "-header -noheader -csv -json -batch -line -column -html -list -readonly -bail -echo -box -markdown -table -quote"
    " -tabs -ascii"
)


def commands_in_stdin(words: list[Word], name: str, command: ShellCommand, script: ShellScript) -> Iterator[Nested]:
    """Yield the commands in the standard input of a program, or in a process substitution among its arguments."""
    for word in words:
        if word.expands and word.raw.startswith(("<(", ">(")):
            yield Nested(doubt=f"{name!r} gets a file that only the shell knows")
    given = [target.text for _, operator, target in command.redirects if operator == "<<<"]
    texts = [*command.documents, *given] if given else command.documents
    for text in texts:
        if name in _SHELL_STDIN:
            yield from script_in(text)
        elif name in _MAILERS and not _reads_mail_commands([word.text for word in words]):
            continue
        elif UNKNOWN in text or starts_programs(text, language_of(name)):
            yield Nested(doubt=f"{name!r} may run what it is given")
    if (command.fed or (script.piped and script.defines)) and runs_unnamed_input(words, name, command):
        yield Nested(doubt=f"it pipes into {name!r}")
    script.input_readers.append((command, name, words))


def runs_unnamed_input(words: list[Word], name: str, command: ShellCommand) -> bool:
    """Return whether it runs code from an input that its own redirections do not name."""
    return not has_own_input(command) and _runs_input(name, [word.text for word in words])


def _runs_input(name: str, words: Sequence[str]) -> bool:
    """Return whether the program runs what it reads from its input."""
    if len(words) == 2 and (words[1] in _INFO or words[1] in _INFO_SHORT.get(name, ())):
        return False
    reads = _READS.get(name)
    if reads is not None:
        return reads(words)
    options = OPTIONS.get(name)
    return options is None or not options.leading or _reads_code(name, words, options)


def _reads_code(name: str, words: Sequence[str], options: ProgramOptions) -> bool:
    """Return whether an interpreter reads its code from the input: no file and no code is named, or the file is the
    input."""
    last = count_own_words(words, options)
    own = words[1:last]
    if any(word[:1] == UNKNOWN for word in own):
        return True
    coded = options.code + options.unread + ("m" if name in ("python", "pypy") else "")
    letters = _short_options(own, coded, options)
    if any(letter in letters for letter in _INTERACTIVE.get(name, "")):
        return True
    if last < len(words) and words[last] != "--":
        return words[last] == "-" or is_input(words[last])
    given = any(letter in coded for letter in letters)
    long = options.long_code | options.long_unread
    return not given and not any(word[2:].partition("=")[0] in long for word in own if word[:2] == "--")


def _short_options(words: Sequence[str], coded: str, options: ProgramOptions) -> str:
    """Return the short options of a call, without their values."""
    ends = coded + options.valued + options.runs + options.wide
    letters, index = "", 0
    while index < len(words):
        word = words[index]
        index += 1
        if word[:2] == "--":
            index += "=" not in word  # the next word may be the value of this option
            continue
        for place, letter in enumerate(word[1:], 2):
            letters += letter
            if letter in ends:
                index += place == len(word)
                break
    return letters


def _reads_sql(words: Sequence[str]) -> bool:
    options = [word for word in words[1:] if word[:1] == "-"]
    return len(words) - len(options) < 3 or not _SQLITE_FLAGS.issuperset(options)


def _reads_queries(words: Sequence[str]) -> bool:
    """psql, mysql: they read queries unless one is given, or a list is asked for."""
    given = any(word[:2] in ("-c", "-e", "-l") or word.startswith(("--com", "--exe", "--list")) for word in words[1:])
    return not given or any(is_input(word) or word[-1:] == "-" for word in words[1:])


def _reads_rules(words: Sequence[str]) -> bool:
    """make: it reads rules only if its file is the input."""
    return any(word[-1:] == "-" or ("/" in word and is_input(word)) for word in words[1:])


def _reads_jobs(words: Sequence[str]) -> bool:
    return not any(word in ("-l", "-r") for word in words[1:])


def _reads_mail_commands(words: Sequence[str]) -> bool:
    """mail: the input is the text of a letter, unless an option makes mail look for commands in it."""
    return any(word[:2] == "-~" or word[:1] == UNKNOWN for word in words[1:])


def _reads_swift(words: Sequence[str]) -> bool:
    """swift: it reads code where no file or subcommand is named, or `repl` or `-` is."""
    return all(word[:1] == "-" for word in words[1:]) or "repl" in words or any(map(is_input, words[1:]))


def _reads_dotnet(words: Sequence[str]) -> bool:
    """dotnet: it reads code for `fsi`, and for `run -`."""
    return "fsi" in words or any(word == "-" or is_input(word) for word in words[1:])


_READS: Final[dict[str, Callable[[Sequence[str]], bool]]] = {
    "sqlite3": _reads_sql,
    **dict.fromkeys(("psql", "mysql", "mariadb"), _reads_queries),
    "make": _reads_rules,
    "crontab": _reads_jobs,
    "swift": _reads_swift,
    "dotnet": _reads_dotnet,
    **dict.fromkeys(_MAILERS, _reads_mail_commands),
}
