"""A command line as rules see it: `read_line(text)` gives a `CommandLine`, remembered for the next time.

A deny or an ask is matched against `commands`: each command that the line may run, wherever it stands, as plain text,
with the program's name alone and without its global options too. An allow with a wildcard is matched against `single`:
the whole line, and only when it is one simple command with nothing in it that runs or writes something else. When the
line could not be read for certain, `unsure` says why; then every deny applies and no such allow.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lyra.core.commands.programs import INERT, can_reach, program_name
from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.tools.shell.fast_path import quick_script
from lyra.tools.shell.grammar import Command, Script, Word, read_script
from lyra.tools.shell.nested import feeds
from lyra.tools.shell.stdin_programs import takes_input
from lyra.tools.shell.text_glob import UNKNOWN, TextGlob
from lyra.tools.shell.variables import calculates, decides_what_runs
from lyra.tools.shell.wrappers import RUNS_OTHERS, basename, inner_of, wraps

__all__ = ["CommandLine", "read_line"]

_NESTED_MAX: Final = 12  # wrappers within wrappers
_QUOTED_FOLDER: Final = re.compile(r'"[^"]*"[A-Za-z0-9_./-]*')  # "$HOME/bin"/tool: whatever it is, the name is known
_SETTERS: Final = frozenset({"export", "declare", "typeset", "local", "readonly", "read", "printf", "mapfile", "set"})
_HARMLESS: Final = frozenset({"/dev/null"})
_CHARACTERS_MAX: Final = 4 * CAPABILITY_LENGTH_MAX  # of all the texts gathered from one line

# Options before a subcommand that take a value of their own.
_GLOBAL_VALUES: Final = {
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}),
    "docker": frozenset({"-H", "--host", "-c", "--context", "-l", "--log-level", "--config"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "-s", "--server", "--cluster", "--user"}),
    "npm": frozenset({"--prefix", "-C", "-w", "--workspace"}),
    "cargo": frozenset({"-C", "--config", "-Z", "--color"}),
}


class CommandLine:
    """What is known of one line."""

    __slots__ = ("commands", "inside", "plain", "single", "text", "unsure", "words")

    def __init__(
        self,
        text: str,
        commands: tuple[str, ...],
        *,
        single: str | None,
        plain: bool,
        inside: str | None,
        unsure: str | None,
    ) -> None:
        self.text = text
        self.commands = commands
        self.single = single  # the one simple command that it is, as written
        self.plain = plain  # of a single command: no quote, escape or wildcard in it
        self.inside = inside  # where it runs another command: its text up to that one's program
        self.unsure = unsure
        # The first words of all that a pattern is compared with; None where one of them is not known.
        texts = {*commands, text, single or text}
        sure = unsure is None and UNKNOWN not in "".join(texts)
        self.words = frozenset([each.partition(" ")[0] for each in texts]) if sure else None

    def allowed_by(self, glob: TextGlob) -> bool:
        """Whether an allow with this pattern covers the whole line."""
        if glob.total:
            return True
        if glob.literal:
            return glob.matches(self.text) or (self.single is not None and glob.matches(self.single))
        if self.single is None or self.unsure is not None or not glob.matches(self.single):
            return False
        if not self.plain and not glob.trailing:
            return False  # what stands after a wildcard could be part of a quoted word
        # A command inside must be named by the rule itself, not swallowed by its wildcard.
        return self.inside is None or (glob.prefix + " ").startswith(self.inside + " ")

    def touched_by(self, glob: TextGlob) -> bool:
        """Whether a deny or an ask with this pattern sees something in the line."""
        if self.unsure is not None:
            return True
        for text in self.commands:
            if glob.touches(text):
                return True
        return glob.matches(self.text)


@lru_cache(maxsize=1024)
def read_line(line: str) -> CommandLine:
    """Read a command line; the answer depends on nothing but the text."""
    text = line.strip(" \t\n")
    script = quick_script(text)
    if script is None:
        script = read_script(text)
        text = script.text or text
    elif not script.compound and not script.commands[0].redirects:
        return _line(text, script, single=text, plain='"' not in text and "'" not in text)
    command = script.commands[0] if script.commands else Command()
    if len(script.commands) == 1:
        command.span = command.span if command.span[1] else (0, len(text))
    single = text[slice(*command.span)] if _is_single(script) else None
    plain = single is not None and all(word.plain for word in (*command.words, *command.assignments))
    if single is not None and plain and not command.redirects:
        single = " ".join(word.text for word in (*command.assignments, *command.words))
    return _line(text, script, single=single, plain=plain)


def _line(text: str, script: Script, *, single: str | None, plain: bool) -> CommandLine:
    texts = _Texts(script)
    inside = texts.run()
    return CommandLine(text, tuple(texts.found), single=single, plain=plain, inside=inside, unsure=script.unsure)


def _is_single(script: Script) -> bool:
    if script.compound or script.unsure or len(script.commands) != 1:
        return False
    command = script.commands[0]
    if command.documents:
        return False
    globs = False
    for word in (*command.words, *command.assignments) if command.assignments else command.words:
        if word.expands:
            return False
        globs |= word.globs
    if not command.words or (globs and not _globs_are_names(command.words)):
        return False
    return all(_harmless(operator, target) for _, operator, target in command.redirects)


def _globs_are_names(words: list[Word]) -> bool:
    """Whether what the patterns of files become is neither an option nor another word of meaning to the program."""
    name = basename(words[0].text)
    if name in INERT:
        return True
    reaching = can_reach(name)
    for word in words:
        known = word.text.partition(UNKNOWN)[0]
        if word.globs and (known[:1] in ("", "-") or wraps(name) or (reaching and "/" not in known)):
            return False
        if word.text == "--" and name == "git":
            break
    return not words[0].globs


def _harmless(operator: str, target: Word) -> bool:
    """Joining two outputs, or throwing one away, writes nothing anywhere."""
    if operator in (">&", "<&"):
        return target.text.rstrip("-").isdecimal()
    return target.text in _HARMLESS and operator in (">", ">>", "&>", "&>>", "<")


class _Texts:
    """Gathers the text of every command that a script may run."""

    __slots__ = ("found", "left", "script")

    def __init__(self, script: Script) -> None:
        self.script = script
        self.left = _CHARACTERS_MAX
        self.found: dict[str, None] = {}

    def run(self) -> str | None:
        """Gather them all; for a script of one command, its text up to the program of the command inside."""
        inside = None
        script = self.script
        if "$" in script.text:  # else nobody asks for the value
            script.sets |= any(map(_sets, script.commands))
        for at, command in enumerate(script.commands):  # scripts in arguments add to the list
            if script.unsure is not None:
                break
            for word in command.assignments:
                self._assigned(word)
            if command.words:
                deeper = self._command(command.words, command, 0)
                inside = inside if at else deeper
                if command.assignments:
                    self._add(" ".join(word.text for word in (*command.assignments, *command.words)))
                if command.redirects:
                    targets = [f"{start}{' ' if op[-1] != '&' else ''}{to.text}" for start, op, to in command.redirects]
                    self._add(" ".join([*[word.text for word in command.words], *targets]))
            elif command.redirects:
                self._add(" ".join(f"{start} {to.text}" for start, _, to in command.redirects))
        if script.hungry and script.unsure is None:
            self._look_for_orders()
        if script.evaluates and script.quotes_code:
            script.doubt("a variable that it calculates with may hold a command")
        return inside

    def _look_for_orders(self) -> None:
        """A text that one command opens, and another that may take its orders from it."""
        opened = [command for command in self.script.commands if command.redirects and feeds(command)]
        for command, name, words in self.script.hungry if opened else ():
            others = len(opened) > 1 or opened[0] is not command
            if others and (not name or takes_input(words, name, command)):
                self.script.doubt("a program in it may take its orders from a text that is not its own")

    def _add(self, text: str) -> None:
        self.left -= len(text) + 1
        if self.left < 0:
            self.script.doubt("it runs too many commands")
        else:
            self.found[text] = None

    def _assigned(self, word: Word) -> None:
        name = word.raw.partition("=")[0].rstrip("+")
        if decides_what_runs(name):
            self.script.doubt(f"it sets {name}, which decides what runs")
        self.script.evaluates = self.script.evaluates or calculates(name)
        self._add(word.text)

    def _command(self, words: list[Word], command: Command, depth: int) -> str | None:
        program = words[0].text
        name = basename(program)
        if UNKNOWN in program and (UNKNOWN in name or not _QUOTED_FOLDER.fullmatch(words[0].raw)):
            self.script.doubt("a program in it is known only to the shell")
            return program
        texts = [word.text for word in words]
        self._add(" ".join(texts))
        if name != program:
            self._add(" ".join((name, *texts[1:])))
        if len(texts) > 2 and texts[1][:1] == "-":
            rest = _after_options(texts, _GLOBAL_VALUES.get(name, frozenset()))
            if rest:
                self._add(" ".join((name, *rest)))
        known = program_name(program)
        return self._inner(known, words, texts, command, depth) if known in RUNS_OTHERS else None

    def _inner(self, name: str, words: list[Word], texts: list[str], command: Command, depth: int) -> str | None:
        inside: str | None = None
        named = 0
        for inner in inner_of(name, words, texts, command, self.script):
            if inner.named:
                named = max(named, inner.named)
                continue
            if depth >= _NESTED_MAX:
                self.script.doubt("it runs commands within commands without end")
            if self.script.unsure is not None:
                break  # every deny applies already
            if inner.aside and inner.words:
                self._command(inner.words, command, depth + 1)
                continue
            inside = UNKNOWN  # nothing that a rule could name, unless it is words of this line
            if inner.doubt is not None:
                self.script.doubt(inner.doubt)
            elif inner.script is not None:
                self.script.compound = True
                read_script(inner.script, self.script, depth + 2)
            elif inner.words:
                deeper = self._command(inner.words, command, depth + 1)
                own = inner.words[: len(inner.words) - inner.added]
                before = words[: len(words) - len(own) + 1]
                if words[-len(own) :] == own and deeper is None:
                    inside = " ".join(word.text for word in before)
                elif deeper is not None and deeper != UNKNOWN:
                    inside = " ".join((*(word.text for word in before[:-1]), deeper))
        if not named:
            return inside
        reached = " ".join(texts[:named])
        return inside if inside == UNKNOWN or len(reached) <= len(inside or "") else reached


def _sets(command: Command) -> bool:
    """Whether it gives a variable a value for the commands after it."""
    return basename(command.words[0].text) in _SETTERS if command.words else bool(command.assignments)


def _after_options(texts: list[str], values: frozenset[str]) -> list[str]:
    at = 1
    while at < len(texts) and texts[at][:1] == "-":
        at += 2 if texts[at] in values else 1
    return texts[at:]
