"""Programs that run what they read from standard input: `python <<EOF`, `at now <<< 'rm x'`, `echo … | sqlite3 db`.

A text within the line is searched for commands, if its language is known; any other input counts as unknown.

So are shells that a command starts, wherever their script is: `bash -c TEXT`, `bash FILE`, `bash <<< TEXT`, `… | bash`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from lyra.core.commands.option_reach import ProgramOptions, count_own_words, starts_programs, words_of
from lyra.core.commands.options import OPTIONS
from lyra.core.commands.programs import OTHER_SHELLS, SHELLS, language_of
from lyra.tools.shell.grammar import ShellCommand, ShellScript, Word
from lyra.tools.shell.text_glob import UNKNOWN

ALL_SHELLS: Final = SHELLS | OTHER_SHELLS
HISTORY: Final = frozenset({"history", "histexpand"})  # options by which earlier lines get into later ones
_SHELL_FILES: Final = frozenset({"--rcfile", "--init-file"})
_SHELL_FLAGS: Final = frozenset(
    {"--login", "--norc", "--noprofile", "--posix", "--restricted", "--verbose", "--noediting", "--debugger", "--help"}
    | {"--version", "--dump-strings", "--dump-po-strings", "--noconfig"}
)

# Programs that, without a command, start a shell or read commands from their input; with the number of plain words
# that come before the command.
TAKES_COMMANDS: Final = {
    **dict.fromkeys(("ssh", "su", "runuser", "chroot", "script", "sg"), 1),
    **dict.fromkeys(("parallel", "rush", "unshare", "nsenter", "fakeroot"), 0),
}
_FLAGS: Final = {"ssh": "46AaCfGgKkMNnqsTtVvXxYy"}  # options that have no value


def commands_in_input(words: list[Word], name: str, command: ShellCommand, script: ShellScript) -> Iterator[Nested]:
    """Commands that a program reads from its input: `echo rm x | parallel`, `ssh host <<< 'rm x'`."""
    plain, value = 0, False
    for text in (word.text for word in words[1:] if word.text != "-"):
        if text[:1] == "-" and len(text) > 1:
            if text.startswith("--c") or (text[1] != "-" and "c" in text and name in ("su", "runuser", "script", "sg")):
                return
            alone = len(text) == 2 and text[1] not in _FLAGS.get(name, "")
            value = alone or (text[1] == "-" and "=" not in text)
        else:
            plain += not value  # else it may be the value of the option before it
            value = False
    if plain <= TAKES_COMMANDS[name]:
        yield from _input(command, script, named=has_own_input(command), piped=command.fed or script.defines)


def shell_script(name: str, words: list[Word], command: ShellCommand, script: ShellScript) -> Iterator[Nested]:
    """Yield what a shell that is started with these words runs."""
    if len(words) == 2 and words[1].text in ("--version", "--help"):
        return
    if name in OTHER_SHELLS:
        # Yield a script in a file as a program like any other; everything else that such a shell runs is a doubt.
        first = words[1] if len(words) > 1 else None
        if first is None or first.text[:1] in ("-", "+") or is_input(first.text):
            yield Nested(doubt=f"it starts {name!r}, whose language is not read")
        else:
            yield from script_file(first, command, script)
        return
    index, wants_script, recalls = 1, False, False
    fish = name == "fish"
    while index < len(words):
        text = words[index].text
        if text[:1] == UNKNOWN or (text[:1] in "-+" and UNKNOWN in text):
            yield Nested(doubt="it starts a shell with options that only the shell knows")
            return
        if text in ("--", "-"):
            index += 1
            break
        if text[:1] not in ("-", "+") or not text[1:]:
            break
        if _is_unclear(text) or (fish and text != "-c"):
            yield Nested(doubt="it starts a shell with options that cannot be told from a script")
            return
        if text[0] == "-" and text[1] != "-" and "c" in text:
            wants_script = True
        recalls |= text[0] == "-" and text[1] != "-" and ("i" in text or "H" in text)
        if text[-1] in "oO" and index + 1 < len(words):
            recalls |= words[index + 1].text in HISTORY or UNKNOWN in words[index + 1].text
        if text in _SHELL_FILES and index + 1 < len(words):
            yield from script_file(words[index + 1], command, script)
        index += 2 if text in _SHELL_FILES or (text[1] != "-" and text[-1] in "oO") else 1
    if wants_script:
        if index < len(words):
            yield from script_in(words[index].text)
        return
    if recalls:
        yield Nested(doubt="it starts a shell that may put earlier lines into later ones")
    reads_input = index >= len(words) or any("s" in word.text for word in words[1:index] if word.text[:2] != "--")
    if not reads_input:
        yield from script_file(words[index], command, script)
    if reads_input:
        yield from _input(command, script, named=has_own_input(command), piped=True)


def _is_unclear(text: str) -> bool:
    """Return whether it is an unknown long option, or a cluster such as `-oc`, whose `o` takes one of the next
    words."""
    if text[:2] == "--":
        return text not in _SHELL_FLAGS and text not in _SHELL_FILES
    return any(letter in text[1:-1] for letter in "oO")


def script_file(word: Word, command: ShellCommand, script: ShellScript) -> Iterator[Nested]:
    """Yield the script in a file. A real file is a program like any other; a substitution or the input is not known."""
    if word.raw.startswith(("<(", ">(")) or word.text[:1] == UNKNOWN:
        yield Nested(doubt="it runs a script that only the shell knows")
    elif is_input(word.text):
        yield from _input(command, script, named=False, piped=True)
    else:
        script.run_files.append((word.text, ""))


def _input(command: ShellCommand, script: ShellScript, *, named: bool, piped: bool) -> Iterator[Nested]:
    """Yield the scripts that a shell reads from its input. `named`: a redirection of the command names the input;
    `piped`: a pipe of the line may lead to it."""
    for document in command.documents:
        yield Nested(script=document)
    for _, operator, target in command.redirects:
        if operator == "<<<":
            yield from script_in(target.text)
        elif target.raw.startswith("<("):
            yield Nested(doubt="it feeds a shell from a substitution")
        elif operator in ("<", "<>"):
            script.run_files.append((target.text, ""))
    if script.piped and piped:
        yield Nested(doubt="it pipes into a shell")
    if not named:
        script.input_readers.append((command, "", []))


# ---------------------------------------------------------------- nested
# Nested commands: the form in which `wrappers` and this module report a command inside another.

_DOCUMENTS: Final = frozenset({"<<", "<<-", "<<<"})
_STDIN_FILE: Final = re.compile(r"(?:.*/)?(?:dev|proc|fd|stdin|\.\.)(?:/.*)?|[0-9]+")


class Nested(NamedTuple):
    """A nested command: its words, or a text to read as a script, or the reason why neither is known."""

    words: list[Word] | None = None
    script: str | None = None
    doubt: str | None = None
    added: int = 0  # words at the end that do not stand in the line
    named: int = 0  # no nested command, but an allow with a wildcard has to spell out so many words
    aside: bool = False  # counts for denies only; an allow with a wildcard need not spell it out


def script_in(text: str) -> Iterator[Nested]:
    """Yield a text that a shell reads as a script; in doubt where the text is not known."""
    if UNKNOWN in text:
        yield Nested(doubt="it runs a script that only the shell knows")
    else:
        yield Nested(script=text)


def is_input(path: str) -> bool:
    """Return whether a file of this name may be an open file of the process: `/dev/stdin`, `/proc/self/fd/3`."""
    return UNKNOWN in path or _STDIN_FILE.fullmatch(posixpath.normpath(path)) is not None


def has_own_input(command: ShellCommand) -> bool:
    """Return whether a redirection of the command names its input: a document or a file."""
    for start, operator, target in command.redirects:
        if start[0] in "<0" and (operator in _DOCUMENTS or (operator in ("<", "<>") and not is_input(target.text))):
            return True
    return False


def feeds(command: ShellCommand) -> bool:
    """Return whether the command opens a text of the line itself, which other commands may read."""
    for _, operator, target in command.redirects:
        if operator in _DOCUMENTS or target.raw.startswith(("<(", ">(")):
            return True
    return False


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
