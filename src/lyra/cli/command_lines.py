"""Prompts that read one command a line, from a terminal, a pipe or a file, and print what each comes to.

`CommandPrompt` is a table of `CommandRow`s with one method for each. `TravelPrompt` adds what every travel through a
run has: moving, searching, breakpoints, the list of steps. `lyra replay`, `vega replay`, `vesper replay` and
`vesper debug` add how their steps look, what can be seen at a place, and how a run is forked. A command that cannot be
done is told, and the next line is read; Ctrl-C stops the command under way, and not the prompt.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import click

from lyra.cli.render import note, printable
from lyra.core.checking.check import did_you_mean
from lyra.core.own_files import make_folder
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.observe.timeline.step import TravelStep
    from lyra.observe.timeline.travel import Breakpoints, Hit, Travel

_PROMPT: Final = "replay> "
_HISTORY_MAX: Final = 1_000
_WIDE: Final = 36  # columns of a usage that has its text on the next line
_STEPS_SHOWN: Final = 20
_COUNT_DIGITS_MAX: Final = 9


class CommandRow(NamedTuple):
    """One command in the help; `other` are further words for the same."""

    usage: str
    text: str
    other: tuple[str, ...] = ()


class CommandResult(NamedTuple):
    text: str
    data: Any = None
    is_end: bool = False


class CommandPrompt:
    """`commands` in the order of the help; `do_NAME` carries one out. With `is_flat` an answer in JSON is the data of
    the command alone, and mistakes are told on the standard output."""

    commands: ClassVar[Mapping[str, CommandRow]] = {}
    is_flat: ClassVar[bool] = False

    def do(self, line: str) -> CommandResult:
        """Carry out one line; a LyraError where that cannot be done."""
        word, _, rest = line.strip().partition(" ")
        act = getattr(self, f"do_{self.command_of(word).replace('-', '_')}")
        result: CommandResult = act(rest.strip())
        return result

    def command_of(self, word: str) -> str:
        """Return the command that a word represents; ConfigError where there is none."""
        names = {other: name for name, row in self.commands.items() for other in (name, *row.other)}
        name = names.get(word.lower())
        if name is None:
            near = did_you_mean(word, list(names))
            raise ConfigError(
                f"there is no command {word!r}", hint=f"did you mean {near}?" if near else "`help` lists them"
            )
        return name

    def words(self, text: str) -> list[str]:
        """Return what a line may continue with, for the tabulator."""
        word, space, rest = text.partition(" ")
        choices: Iterable[str] = () if space else [row.usage.partition(" ")[0] for row in self.commands.values()]
        with suppress(ConfigError):
            choices = self.choices(self.command_of(word), rest) if space else choices
        begun = text.rpartition(" ")[2]
        return [choice for choice in choices if choice.startswith(begun)]

    def choices(self, name: str, rest: str) -> Iterable[str]:  # noqa: ARG002 (for those that have some)
        """Return what the next word behind a command may be; `rest` is what stands there already."""
        return ()

    def on_interrupt(self) -> None:
        """Ctrl-C came while a command was carried out."""

    def do_help(self, _: str) -> CommandResult:
        """List the commands, one a line; one with a long usage has its text on the next."""
        rows = self.commands.values()
        width = max(len(row.usage) for row in rows if len(row.usage) < _WIDE)
        lines = []
        for row in rows:
            short = f"  ({', '.join(row.other)})" if row.other else ""
            if len(row.usage) < _WIDE:
                lines.append(f"  {row.usage:<{width}}  {row.text}{short}")
            else:
                lines += [f"  {row.usage}", f"  {'':<{width}}  {row.text}{short}"]
        return CommandResult("\n".join(lines), {name: row.text for name, row in self.commands.items()})

    def do_quit(self, _: str) -> CommandResult:
        return CommandResult("", is_end=True)


ENDING: Final = {
    "help": CommandRow("help", "this list", ("h", "?")),
    "quit": CommandRow("quit", "end; so does Ctrl-D", ("q", "exit")),
}
MOVING: Final = {
    "step": CommandRow("step [N]", "on by one step, or N of them", ("s", "n")),
    "back": CommandRow("back [N]", "back by one step, or N of them", ("b",)),
    "goto": CommandRow("goto N", "to the moment after step N; 0 is before the first, `end` after the last", ("g",)),
    "find": CommandRow("find TEXT", "on to the next step with this text; `find` alone goes on", ("f", "/")),
    "continue": CommandRow("continue", "on to the next breakpoint, or to the end"),
    "reverse-continue": CommandRow("reverse-continue", "back to the last breakpoint, or to the beginning", ("rc", "r")),
    "break": CommandRow("break agent NAME | error | cost $X", "stop there"),
    "breaks": CommandRow("breaks", "the breakpoints"),
    "delete": CommandRow("delete N", "take a breakpoint away"),
    "steps": CommandRow("steps [FROM [TO]]", "the steps around this one", ("l",)),
}


class TravelPrompt(CommandPrompt):
    """The place in a run and the commands that every run has. A stack gives `travel` with its steps, `show_place` and
    `step_line`, and its own commands; `first` is the number of the first step, `noun` the name of one."""

    noun: ClassVar[str] = "step"
    first: ClassVar[int] = 1

    def __init__(self, travel: Travel, breakpoints: Breakpoints) -> None:
        self.travel = travel
        self.breakpoints = breakpoints
        self._wanted = ""

    def show_place(self, message: str = "") -> CommandResult:
        """Tell where the run stands, behind a message."""
        raise NotImplementedError

    def step_line(self, step: TravelStep, *, is_here: bool = False) -> str:
        raise NotImplementedError

    # ------------------------------------------------------------------ moving

    def do_step(self, rest: str) -> CommandResult:
        self.travel.advance(self.count(rest))
        return self.show_place()

    def do_back(self, rest: str) -> CommandResult:
        self.travel.goto(self.travel.position - self.count(rest))
        return self.show_place()

    def do_goto(self, rest: str) -> CommandResult:
        last = len(self.travel.steps)
        position = last if rest == "end" else self.number(rest)
        if position > last:
            hint = f"they go from {self.first} to {last - 1 + self.first}; `goto end`"
            raise ConfigError(f"there is no {self.noun} {position}", hint=hint)
        self.travel.goto(position)
        return self.show_place()

    def do_find(self, rest: str) -> CommandResult:
        self._wanted = rest or self._wanted
        if not self._wanted:
            raise ConfigError("find what?", hint="find TEXT")
        is_found = self.travel.find(self._wanted)
        return self.show_place() if is_found else CommandResult(f"no {self.noun} after this one has {self._wanted!r}")

    def do_continue(self, _: str) -> CommandResult:
        return self._show_stop(self.breakpoints.forward())

    def do_reverse_continue(self, _: str) -> CommandResult:
        return self._show_stop(self.breakpoints.backward())

    def _show_stop(self, hit: Hit | None) -> CommandResult:
        return self.show_place("" if hit is None else f"breakpoint {hit.breakpoint}")

    def do_break(self, rest: str) -> CommandResult:
        point = self.breakpoints.add(rest)
        return CommandResult(f"breakpoint {point}", point.to_data())

    def do_breaks(self, _: str) -> CommandResult:
        points = self.breakpoints.all
        return CommandResult("\n".join(map(str, points)) or "none", [point.to_data() for point in points])

    def do_delete(self, rest: str) -> CommandResult:
        gone = self.breakpoints.delete(self.number(rest, of="breakpoint"))
        return CommandResult(f"deleted {gone}", gone.to_data())

    def do_steps(self, rest: str) -> CommandResult:
        position, words = self.travel.position, rest.split()
        first = self.number(words[0]) if words else max(self.first, position - _STEPS_SHOWN // 2)
        last = self.number(words[1]) if len(words) > 1 else first - self.first + _STEPS_SHOWN
        steps = self.travel.steps[max(0, first - self.first) : last]
        lines = [self.step_line(step, is_here=step.number == position) for step in steps]
        return CommandResult("\n".join(lines) or f"no {self.noun}s", [step.to_data() for step in steps])

    # ------------------------------------------------------------------ words of a command

    def choices(self, name: str, rest: str) -> Iterable[str]:
        if name != "break":
            return ()
        kind, is_detail, _ = rest.partition(" ")
        if not is_detail:
            return self.breakpoints.forms
        return self.travel.agents_asked() if kind == "agent" else ()

    def count(self, text: str) -> int:
        """Return a number of steps; one where none is given."""
        return self.number(text) if text else 1

    def number(self, text: str, *, of: str = "") -> int:
        if not (text.isascii() and text.isdigit()):
            noun = of or self.noun
            article = "an" if noun[0] in "aeiou" else "a"
            raise ConfigError(f"{text!r} is no number of {article} {noun}", hint="`help` shows what a command takes")
        return int(text[:_COUNT_DIGITS_MAX])


def split_quoted(rest: str, *, example: str) -> list[str]:
    """Return the words of a command in which a text stands in quotes."""
    try:
        return shlex.split(rest)
    except ValueError as error:
        raise ConfigError(f"{error}", hint=f"put the text in quotes: {example}") from None


def _read_lines(prompt: str) -> Iterator[str]:
    """Read the lines of the standard input, behind a prompt where a person types them."""
    while True:
        if not prompt:
            line = sys.stdin.readline()
            if not line:
                return
            yield line.rstrip("\n")
            continue
        try:
            yield input(prompt)
        except EOFError:
            click.echo("", err=True)
            return
        except KeyboardInterrupt:  # of a line that was begun
            click.echo("", err=True)


def lines_of_file(file: str, *, key: str) -> list[str]:
    """Return the lines of a file that an option names; `key` is the option."""
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


def with_completion(ctx: click.Context, prompt: CommandPrompt) -> None:
    """Arrow keys, earlier lines and the tabulator, where the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return
    with_history(ctx, "replay_history")

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer().lstrip()
        choices = [word for word in prompt.words(line) if word.startswith(text)]
        return f"{choices[state]} " if state < len(choices) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")


def answer_commands(
    prompt: CommandPrompt,
    ctx: click.Context | None = None,
    *,
    sign: str = _PROMPT,
    lines: Iterable[str] | None = None,
    as_json: bool = False,
) -> bool:
    """Carry out one line after another until the end, those of the standard input where none are given; False where
    some could not be done, unless a person typed them. With `ctx` a person has earlier lines and the tabulator."""
    is_person = lines is None and not as_json and sys.stdin.isatty()
    if is_person and ctx is not None:
        with_completion(ctx, prompt)
    is_done = True
    for line in _read_lines(sign if is_person else "") if lines is None else lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        result = _answer(prompt, line, as_json=as_json)
        is_done = is_done and result is not None
        if result is not None and result.is_end:
            break
    return is_done or is_person


def _answer(prompt: CommandPrompt, line: str, *, as_json: bool) -> CommandResult | None:
    """Do one command and show what it gives; None where it could not be done."""
    try:
        result = prompt.do(line)
    except KeyboardInterrupt:
        prompt.on_interrupt()
        note("stopped")
        return None
    except LyraError as error:
        hint = f" ({error.hint})" if error.hint else ""
        if as_json and not prompt.is_flat:
            _print_line({"command": line, "ok": False, "error": error.message, "hint": error.hint})
        elif as_json:
            _print_line({"error": f"{error.message}{hint}"})
        elif prompt.is_flat:
            click.echo(printable(f"{error.message}{hint}"))
        else:
            note(f"error: {error.message}")
            if error.hint:
                note(f"  hint: {error.hint}")
        return None
    print_answer(result, prompt, line, as_json=as_json)
    return result


def print_answer(result: CommandResult, prompt: CommandPrompt, line: str = "", *, as_json: bool) -> None:
    if as_json and prompt.is_flat:
        for data in result.data if isinstance(result.data, list) else [result.data]:
            if data is not None:
                _print_line(data)
    elif as_json:
        _print_line({"command": line, "ok": True, "data": result.data})
    elif result.text:
        click.echo("\n".join(printable(text_line) for text_line in result.text.split("\n")))


def _print_line(data: Any) -> None:
    click.echo(json.dumps(data, allow_nan=False, default=str))
