"""Shells that a command starts, and where their script is: `bash -c TEXT`, `bash FILE`, `bash <<< TEXT`, `… | bash`.

The text of a shell with its own language (`csh`, `nu`) is not read: what it runs is a doubt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lyra.core.commands.programs import OTHER_SHELLS, SHELLS
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
# Nested commands: the form in which `wrappers`, `shells` and `stdin_programs` report a command inside another.

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
