"""A prompt that reads one command a line, from a terminal, a pipe or a file, and prints what each comes to.

`lyra replay` and `vega replay` are such prompts: each has a table of `CommandRow`s and an object with `do` and `words`
(`PromptWords`). A command that cannot be done is told, and the next line is read; Ctrl-C stops the command under way,
and not the prompt. Which commands there are, and what they do, is not known here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import click

from lyra.cli.render import note, printable
from lyra.core.checking.check import did_you_mean
from lyra.core.own_files import make_folder
from lyra.errors import ConfigError, LyraError

_PROMPT: Final = "replay> "
_HISTORY_MAX: Final = 1_000
_WIDE: Final = 36  # columns of a usage that has its text on the next line


class CommandRow(NamedTuple):
    """One command in the help; `other` are further words for the same."""

    usage: str
    text: str
    other: tuple[str, ...] = ()


class CommandResult(NamedTuple):
    text: str
    data: Any = None
    is_end: bool = False


class PromptWords(Protocol):
    def do(self, line: str) -> CommandResult:
        """Carry out one line; a LyraError where that cannot be done."""
        ...

    def words(self, text: str) -> list[str]:
        """Return what a line may go on with, for the tabulator."""
        ...

    def interrupted(self) -> None:
        """Ctrl-C came while a command was carried out."""
        ...


def command_of(word: str, table: Mapping[str, CommandRow]) -> str:
    """The command that a word stands for; ConfigError where there is none."""
    names = {other: name for name, row in table.items() for other in (name, *row.other)}
    name = names.get(word.lower())
    if name is None:
        near = did_you_mean(word, list(names))
        raise ConfigError(
            f"there is no command {word!r}", hint=f"did you mean {near}?" if near else "`help` lists them"
        )
    return name


def help_lines(table: Mapping[str, CommandRow]) -> list[str]:
    """Return what there is, a command a line; one with a long usage has its text on the next."""
    width = max(len(row.usage) for row in table.values() if len(row.usage) < _WIDE)
    lines = []
    for row in table.values():
        short = f"  ({', '.join(row.other)})" if row.other else ""
        if len(row.usage) < _WIDE:
            lines.append(f"  {row.usage:<{width}}  {row.text}{short}")
        else:
            lines += [f"  {row.usage}", f"  {'':<{width}}  {row.text}{short}"]
    return lines


# ---------------------------------------------------------------- lines in
def typed_lines(*, is_person: bool) -> Iterator[str]:
    """The lines of the standard input, behind a prompt where a person types them."""
    while True:
        if not is_person:
            line = sys.stdin.readline()
            if not line:
                return
            yield line.rstrip("\n")
            continue
        try:
            yield input(_PROMPT)
        except EOFError:
            click.echo("", err=True)
            return
        except KeyboardInterrupt:  # of a line that was begun
            click.echo("", err=True)


def lines_of_file(file: str, *, key: str) -> list[str]:
    """The lines of a file that an option names; `key` is the option."""
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text in UTF-8"
        raise ConfigError(f"{file} cannot be read: {reason}", key=key) from None


def with_history(ctx: click.Context, name: str) -> None:
    """Arrow keys and earlier lines, where the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return
    file = os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "lyra", name)
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY_MAX)

    def save() -> None:
        with suppress(OSError):
            make_folder(os.path.dirname(file), private=True)
            readline.write_history_file(file)

    ctx.call_on_close(save)


def with_completion(ctx: click.Context, words: PromptWords) -> None:
    """Arrow keys, earlier lines and the tabulator, where the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return
    with_history(ctx, "replay_history")

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer().lstrip()
        choices = [word for word in words.words(line) if word.startswith(text)]
        return f"{choices[state]} " if state < len(choices) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")


# ---------------------------------------------------------------- answers out
def answer_lines(words: PromptWords, lines: Iterable[str], *, as_json: bool = False) -> bool:
    """Carry out one line after another until the end; gives whether all could be done."""
    is_done = True
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        result = _answer(words, line, as_json=as_json)
        is_done = is_done and result is not None
        if result is not None and result.is_end:
            break
    return is_done


def _answer(words: PromptWords, line: str, *, as_json: bool) -> CommandResult | None:
    """Do one command and show what it gives; None where it could not be done."""
    try:
        result = words.do(line)
    except KeyboardInterrupt:
        words.interrupted()
        note("stopped")
        return None
    except LyraError as error:
        if as_json:
            _print_line({"command": line, "ok": False, "error": error.message, "hint": error.hint})
        else:
            note(f"error: {error.message}")
            if error.hint:
                note(f"  hint: {error.hint}")
        return None
    if as_json:
        _print_line({"command": line, "ok": True, "data": result.data})
    elif result.text:
        click.echo("\n".join(printable(text_line) for text_line in result.text.split("\n")))
    return result


def _print_line(data: Any) -> None:
    click.echo(json.dumps(data, allow_nan=False, default=str))
