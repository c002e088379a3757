"""Files that a line both writes and runs: `mkfifo p; echo 'rm x' > p & sh p`, `cp /bin/rm y; ./y x`.

What a script in a file does is not read, since a file is a program like any other. But a line that makes the file
itself could hide a command in it. `find_written_files` says what the commands of a line write, as far as their words
show it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lyra.tools.shell.grammar import ShellCommand
from lyra.tools.shell.text_glob import UNKNOWN

_OUT: Final = frozenset({">", ">>", ">|", "&>", "&>>", "<>", ">&"})
_COPIES: Final = frozenset({"cp", "mv", "ln", "install", "link"})
_VALUES: Final = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document")}
FIFOS: Final = frozenset({"mkfifo", "mknod"})


class WrittenFile(NamedTuple):
    """A file that a line writes: its text where the line shows it, the file that it is a copy of, or neither."""

    name: str
    text: str | None = None
    copy_of: str = ""
    is_fifo: bool = False


def find_written_files(commands: Iterable[ShellCommand]) -> list[WrittenFile]:
    """Return the files that the commands write."""
    files = [file for command in commands for file in _find_written(command)]
    fifos = {posixpath.normpath(file.name) for file in files if file.is_fifo}
    if not fifos:
        return files
    filled = {posixpath.normpath(file.name) for file in files if not file.is_fifo}
    # A fifo that another command of the line fills has that command's text; else it comes from outside the line.
    return [
        file._replace(is_fifo=posixpath.normpath(file.name) in fifos)
        for file in files
        if not file.is_fifo or posixpath.normpath(file.name) not in filled
    ]


def may_be_same_file(left: str, right: str) -> bool:
    """Return whether two names may be those of one file; folders that a line goes to are not followed."""
    if left.rpartition("/")[2] != right.rpartition("/")[2]:
        return False
    left, right = posixpath.normpath(left), posixpath.normpath(right)
    return left == right or left.endswith(f"/{right}") or right.endswith(f"/{left}")


def _find_written(command: ShellCommand) -> Iterator[WrittenFile]:
    texts = [word.text for word in command.words]
    name = texts[0].rpartition("/")[2] if texts else ""
    for _, operator, target in command.redirects:
        if operator in _OUT and not target.text.isdecimal() and target.text != "/dev/null":
            yield WrittenFile(target.text, _find_printed(name, texts, command))
    plain = [text for text in texts[1:] if text[:1] != "-"]
    if name in ("tee", "sponge"):
        known = _find_printed("cat", texts[:1], command)
        yield from (WrittenFile(text, known) for text in plain)
    elif name in FIFOS:
        yield from (WrittenFile(text, is_fifo=True) for text in plain)
    elif name in _COPIES:
        for source in plain[:-1]:
            yield WrittenFile(plain[-1], copy_of=source)
            yield WrittenFile(posixpath.join(plain[-1], source.rpartition("/")[2]), copy_of=source)
    elif name == "dd":
        yield from (WrittenFile(text[3:]) for text in texts if text.startswith("of="))
    for option in _VALUES.get(name, ()):
        for index, text in enumerate(texts):
            if text == option and index + 1 < len(texts):
                yield WrittenFile(texts[index + 1])
            elif text.startswith(option) and text != option:
                yield WrittenFile(text[len(option) :].lstrip("="))


def _find_printed(name: str, texts: list[str], command: ShellCommand) -> str | None:
    """Return what a command prints, where its own words say that; None where they do not."""
    if command.fed:
        return None
    given = [target.text for _, operator, target in command.redirects if operator == "<<<"]
    if name == "cat" and len(texts) == 1:
        text = "\n".join([*command.documents, *given])
    elif name == "echo":
        text = " ".join(text for text in texts[1:] if text not in ("-n", "-E"))
    elif name == "printf" and len(texts) == 2:
        text = texts[1].replace("\\n", "\n")
    else:
        return None
    strange = UNKNOWN in text or (name != "cat" and ("\\" in text or "%" in text))
    return None if strange or (name == "echo" and "-e" in texts) else text
