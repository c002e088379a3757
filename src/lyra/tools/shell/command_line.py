"""A command line as rules see it: `read_line(text)` gives a `CommandLine`, remembered for the next time.

A deny or an ask is matched against `commands`: each command that the line may run, wherever it stands, as plain text,
with the program's name alone and without its global options too. The arguments of a program that no table knows are
`loose`: a command may begin at each of them. An allow with a wildcard is matched against `single`:
the whole line, and only when it is one simple command with nothing in it that runs or writes something else. When the
line could not be read for certain, `unsure` says why; then every deny applies and no such allow. A list of simple
commands has them as its `parts`: a pipe or list is allowed when each of its parts is. A loop over names is the list of
its turns; what only times a command, sets a variable that changes how it prints, or names the file for its output is
no part of it.

A file that a line both writes and runs is read as a script of the line: `mkfifo p; echo 'rm x' > p & sh p`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.commands.option_reach import starts_programs
from lyra.core.commands.options import ANY_WORD
from lyra.core.commands.programs import INERT, ORDINARY, can_reach, language_of, program_name
from lyra.core.commands.reading import reads_only
from lyra.core.limits import CAPABILITY_LENGTH_MAX, WORDS_MAX
from lyra.tools.shell.grammar import ShellCommand, ShellScript, Word, read_script
from lyra.tools.shell.stdin_programs import feeds, runs_unnamed_input
from lyra.tools.shell.text_glob import PATH, UNKNOWN, TextGlob, calculates, decides_what_runs, names_program
from lyra.tools.shell.wrappers import RUNS_OTHERS, basename, find_nested, wraps

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


_NESTED_MAX: Final = 12  # wrappers within wrappers
_QUOTED_FOLDER: Final = re.compile(r'"[^"]*"[A-Za-z0-9_./-]*')  # "$HOME/bin"/tool: the folder is not known, the name is
_SETTERS: Final = frozenset({"export", "declare", "typeset", "local", "readonly", "read", "printf", "mapfile", "set"})
_HARMLESS: Final = frozenset({"/dev/null"})
_CHARACTERS_MAX: Final = 4 * CAPABILITY_LENGTH_MAX  # of all the texts gathered from one line
_LOOKS_MAX: Final = 200  # places of one line where a command may begin; after that every one counts as such
_REST_MAX: Final = 100  # words of a command that begins at an argument; a rule names fewer
_LOOSE_CHARACTERS_MAX: Final = 2_000  # of a command or script in an argument; a rule is shorter
_LOOSE_WORD: Final = re.compile(r"[^\s;|&()<>'\"=`$,!:{}\[\]]+")
_SIGN: Final = re.compile(r"[=!:({\[\"'`|;&]\s*")  # in other languages a command may begin behind these
_SCRIPT_LIKE: Final = re.compile(r"[\s;&|`$()<>]")
_RUN_FILES_MAX: Final = 20

# Options before a subcommand that take their own value.
_GLOBAL_VALUES: Final = {
    "git": frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}),
    "docker": frozenset({"-H", "--host", "-c", "--context", "-l", "--log-level", "--config"}),
    "kubectl": frozenset({"-n", "--namespace", "--context", "--kubeconfig", "-s", "--server", "--cluster", "--user"}),
    "npm": frozenset({"--prefix", "-C", "-w", "--workspace"}),
    "cargo": frozenset({"-C", "--config", "-Z", "--color"}),
}


class LinePart(NamedTuple):
    """One simple command of a line: the operator before it, the command, the files that its output is written to, and
    whether the line has it as it stands here."""

    operator: str
    line: CommandLine
    writes: tuple[str, ...] = ()
    is_bare: bool = True


class CommandLine:
    """One command line, as far as it could be read."""

    __slots__ = ("_parts", "commands", "inside", "loose", "plain", "single", "text", "unsure", "words")

    def __init__(
        self,
        text: str,
        commands: tuple[str, ...],
        *,
        single: str | None,
        plain: bool,
        inside: str | None,
        unsure: str | None,
        loose: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.text = text
        self.commands = commands
        self.loose = loose  # the arguments of each program that no table knows
        self.single = single  # the one simple command that it is, as written
        self.plain = plain  # of a single command: no quote, escape or wildcard in it
        self.inside = inside  # if it runs another command: its text up to the program of that one
        self.unsure = unsure
        self._parts: tuple[LinePart, ...] | None = None
        # The first words of all texts that patterns are compared with; None if one of them is not known.
        texts = {*commands, text, single or text}
        sure = unsure is None and UNKNOWN not in "".join(texts)
        words = [command.partition(" ")[0] for command in texts] if sure else []
        self.words = frozenset([*words, *_words_in(loose)] if loose else words) if sure else None

    def is_allowed_by(self, glob: TextGlob) -> bool:
        """Return whether an allow with this pattern covers the whole line."""
        if glob.total:
            return True
        if glob.literal:
            return glob.matches(self.text) or (self.single is not None and glob.matches(self.single))
        if self.single is None or self.unsure is not None or not glob.matches(self.single):
            return False
        if not self.plain and not glob.trailing:
            return False  # what the pattern has after a wildcard could be part of a quoted word
        # The rule itself must spell out a nested command; its wildcard does not cover one.
        return self.inside is None or (glob.prefix + " ").startswith(self.inside + " ")

    @property
    def parts(self) -> tuple[LinePart, ...]:
        """The simple commands of a pipe or list, or of one command with something around it; none for any other line.
        Each part is read by itself and is complete, so the shell reads the line as these commands, too."""
        if self._parts is None:
            self._parts = _split_list(self.text) if self.unsure is None else ()
        return self._parts

    @property
    def is_pipe(self) -> bool:
        """Whether it is simple commands joined by `|` and nothing else."""
        is_joined = all(part.operator == "|" for part in self.parts[1:]) and all(part.is_bare for part in self.parts)
        return len(self.parts) > 1 and is_joined

    @property
    def enters(self) -> bool:
        """Whether it goes to another folder, or may go."""
        return not self.commands or self.commands[0].partition(" ")[0] == "cd"

    @property
    def reads_only(self) -> bool:
        """Whether each command of the line is known to read and print, and does nothing else."""
        if self.parts:
            return all(part.line.reads_only and not part.writes for part in self.parts)
        return self.single is not None and self.unsure is None and _only_reads(self.single)

    def is_touched_by(self, glob: TextGlob) -> bool:
        """Return whether a deny or an ask with this pattern matches a command of the line."""
        if self.unsure is not None:
            return True
        for text in self.commands:
            if glob.touches(text):
                return True
        if glob.matches(self.text):
            return True
        return bool(self.loose) and self.may_run(glob)

    def may_run(self, glob: TextGlob) -> bool:
        """Return whether a command that this pattern matches may begin at an argument of a program that no table knows.
        A pattern that does not name its program is compared with whole commands only."""
        program = glob.word
        if not program or (self.words is not None and program not in self.words):
            return False
        looks = _LOOKS_MAX
        for arguments in self.loose:
            for index, argument in enumerate(arguments):
                if program not in argument:
                    continue
                rest = " ".join(arguments[index + 1 : index + 1 + _REST_MAX])
                for value in _values_in(argument):
                    looks -= 1
                    if looks < 0 or _may_begin(value, rest, glob):
                        return True  # too many to look at: in doubt a deny matches
                if _SCRIPT_LIKE.search(argument) and _may_be_script(argument, self.text, glob):
                    return True
        return False


_LIST_PIECE: Final = re.compile(
    r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|&&|\|\|(?!&)|\|(?![|&])|;(?!;)|\n|[^'"\\|;&\n]+|.""", re.DOTALL
)
_LIST_OPERATORS: Final = frozenset({"|", "||", "&&", ";", "\n"})
_PARTS_MAX: Final = 20


_LOOP: Final = re.compile(  # its variable is none that a program reads from its environment
    r"for ([a-z][a-z0-9]{0,15}) in ([A-Za-z0-9_./@%+,*? -]+?)[ \t]*[;\n]\s*do\s+(.+?)[;\n]\s*done"
    r"(?=\s*(?:[|&;\n]|$))(.*)",
    re.DOTALL,
)
_AROUND: Final = re.compile(
    r"(?:timeout(?: (?:-k|-s|--kill-after=|--signal=) ?[A-Z0-9.]+[smhd]?| --foreground| --preserve-status| -v)*"
    r" [0-9.]+[smhd]?|nice(?: -n ?[0-9]+| -[0-9]+)?|time(?: -p)?) "
)
_ASSIGNED: Final = re.compile(  # what they change is how a program prints, and by which path Python finds the project
    r"(?:CI|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES|TERM|LANG|LC_ALL|TZ|NODE_ENV|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|PYTHONUTF8|PYTHONDEVMODE|PYTHONFAULTHANDLER"
    r")=[A-Za-z0-9_.,+-]*|PYTHONPATH=(?![^ ]*\.\.)[A-Za-z0-9_.][A-Za-z0-9_./-]*(?::[A-Za-z0-9_.][A-Za-z0-9_./-]*)*"
)
_RUN_THE_PROJECT: Final = frozenset({"pytest", "py.test", "python", "python3", "coverage"})
_FILE: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@%+,:=-]*")
_WRITES: Final = _OUT - {"<>", ">&"}
_GLOBS: Final = frozenset("*?")


def _split_list(text: str) -> tuple[LinePart, ...]:
    """Return the parts of a pipe or list; none where one of them is more than a simple command."""
    loop = _LOOP.fullmatch(text)
    texts: list[tuple[str, str]] = [("", "")]
    for piece in _LIST_PIECE.findall(text if loop is None else _unroll(*loop.groups())):
        if piece in _LIST_OPERATORS:
            texts.append((piece, ""))
        else:
            texts[-1] = (texts[-1][0], texts[-1][1] + piece)
    if len(texts) > _PARTS_MAX:
        return ()
    parts = [
        _read_part(operator, part.strip(" \t"), alone=len(texts) == 1 and loop is None) for operator, part in texts
    ]
    if None in parts or (loop is not None and any(part.line.enters for part in parts if part)):
        return ()
    return tuple(part._replace(is_bare=part.is_bare and loop is None) for part in parts if part)


def _unroll(name: str, names: str, body: str, rest: str) -> str:
    """Return a loop as the list of its turns, with the value for the variable where that is a whole word. A value with
    a wildcard may become any words."""
    if read_line(body).unsure is not None:
        return ""
    values = names.split() if not _GLOBS.intersection(names) else ["*"]
    word = rf"""'[^']*'|(?<!\S)("?)\$(?:{name}|\{{{name}\}})\1(?![^\s;|&])|"(?:[^"\\]|\\.)*"|\\."""
    turn = re.sub(word, lambda match: match[0] if match[1] is None else "\0", body)
    return "\n".join(turn.replace("\0", value) for value in values[: _PARTS_MAX + 1]) + rest


def _read_part(operator: str, text: str, *, alone: bool) -> LinePart | None:
    """Return one command of a list; None where it is no simple command, or is `alone` and has nothing around it."""
    text = text.replace("$?", "0")  # a number: the shell reads the part as it would with this one
    if "#" in text or text.endswith("\\"):
        return None
    line = read_line(text)
    script = read_script(text) if line.unsure is None else ShellScript()
    command = script.commands[0] if len(script.commands) == 1 and not script.compound else ShellCommand()
    whole = rest = " ".join(word.raw for word in command.words)
    while match := _AROUND.match(rest):
        rest = rest[match.end() :]
    opened = [redirect for redirect in command.redirects if not _harmless(redirect[1], redirect[2])]
    if rest and not command.documents and (rest != whole or command.assignments or opened):
        core = read_line(rest)
        names = [word.raw for word in command.assignments]
        finds = any(name.startswith("PYTHONPATH") for name in names)
        if (
            core.single is not None
            and all(map(_ASSIGNED.fullmatch, names))
            and not (finds and (core.reads_only or basename(rest.split()[0]) not in _RUN_THE_PROJECT))
            and all(_FILE.fullmatch(to.raw) and start[0] != "{" for start, _, to in opened)
            and all(kind in _WRITES or (kind == "<" and core.reads_only) for _, kind, _ in opened)
        ):
            return LinePart(operator, core, tuple(to.text for _, kind, to in opened if kind in _WRITES), is_bare=False)
    return LinePart(operator, line) if line.single is not None and not alone else None


def _only_reads(command: str) -> bool:
    script = fast_script(command) or read_script(command)
    words = script.commands[0].words if script.commands and not script.commands[0].assignments else []
    return bool(words) and reads_only([word.text for word in words])


def _values_in(argument: str) -> Iterator[str]:
    """Yield what an argument may be or hold: itself, the value of a short option, what follows a sign such as `=` or
    `!`."""
    yield argument
    if argument[:1] == "-" and argument[1:2] != "-" and len(argument) > 2:
        yield argument[2:]
    for sign in _SIGN.finditer(argument):
        yield argument[sign.end() :]


def _may_begin(value: str, rest: str, glob: TextGlob) -> bool:
    """Return whether a command begins with this value, as a program or as a script's text."""
    name = basename(value.partition(" ")[0]) if value[:1] == "/" else value[: len(glob.word)]
    if name != glob.word:
        return False
    text = value[value.find(name) :][:_LOOSE_CHARACTERS_MAX]
    return glob.touches(f"{text} {rest}") or glob.touches(text)


def _may_be_script(text: str, line: str, glob: TextGlob) -> bool:
    """Return whether the text of an argument, read as a script, runs a command that the pattern matches."""
    if len(text) > _LOOSE_CHARACTERS_MAX or len(text) >= len(line):
        return len(text) < len(line)  # too long to be read here: in doubt a deny matches
    inner = read_line(text)
    return any(glob.touches(command) for command in inner.commands) or inner.may_run(glob)


def _words_in(loose: tuple[tuple[str, ...], ...]) -> set[str]:
    """Every word in the arguments that may be the name of a program."""
    words = {word for arguments in loose for text in arguments for word in (*text.split(), *_LOOSE_WORD.findall(text))}
    words |= {basename(word) for word in words}
    return words | {word[2:] for word in words if word[:1] == "-"}


def read_line(line: str) -> CommandLine:
    """Read a command line; the answer depends on nothing but the text. A line that is too long is not read."""
    if len(line) > CAPABILITY_LENGTH_MAX:
        why = f"it is longer than {CAPABILITY_LENGTH_MAX} characters"
        return CommandLine(line, (), single=None, plain=False, inside=None, unsure=why)
    return _read_line(line)


@lru_cache(maxsize=1024)
def _read_line(line: str) -> CommandLine:
    text = line.strip(" \t\n")
    script = fast_script(text)
    if script is None:
        script = read_script(text)
        text = script.text or text
    elif not script.compound and not script.commands[0].redirects:
        return _line(text, script, single=text, plain='"' not in text and "'" not in text)
    command = script.commands[0] if script.commands else ShellCommand()
    if len(script.commands) == 1:
        command.span = command.span if command.span[1] else (0, len(text))
    single = text[slice(*command.span)] if _is_single(script) else None
    plain = single is not None and all(word.plain for word in (*command.words, *command.assignments))
    if single is not None and plain and not command.redirects:
        single = " ".join(word.text for word in (*command.assignments, *command.words))
    return _line(text, script, single=single, plain=plain)


def _line(text: str, script: ShellScript, *, single: str | None, plain: bool) -> CommandLine:
    gatherer = _Texts(script)
    inside = gatherer.run()
    return CommandLine(
        text,
        tuple(gatherer.texts),
        single=single,
        plain=plain,
        inside=inside,
        unsure=script.unsure,
        loose=tuple(gatherer.loose),
    )


def _is_single(script: ShellScript) -> bool:
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
    """Return whether file globs can only become names of files, not options or subcommands of the program."""
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

    __slots__ = ("left", "loose", "makes_fifo", "script", "texts")

    def __init__(self, script: ShellScript) -> None:
        self.script = script
        self.left = _CHARACTERS_MAX
        self.texts: dict[str, None] = {}
        self.loose: list[tuple[str, ...]] = []
        self.makes_fifo = False

    def run(self) -> str | None:
        """Gather all texts. Returns, for a script of one command, its text up to the program of the nested command."""
        script = self.script
        if "$" in script.text:  # without it no command reads a variable
            script.sets |= any(map(_sets, script.commands))
        inside = self._gather(0)
        if script.sets_path and script.unsure is None and find_written_files(script.commands):
            script.doubt("it writes a file and changes where programs are looked for")
        if (script.run_files or self.makes_fifo) and len(script.commands) > 1 and script.unsure is None:
            self._read_written_files()
        if script.input_readers and script.unsure is None:
            opened = [command for command in self.script.commands if command.redirects and feeds(command)]
            for command, name, words in self.script.input_readers if opened else ():
                others = len(opened) > 1 or opened[0] is not command
                if others and (not name or runs_unnamed_input(words, name, command)):
                    self.script.doubt("a program in it may take its orders from a text that is not its own")
        if script.evaluates and script.quotes_code:
            script.doubt("a variable that it calculates with may hold a command")
        return inside

    def _gather(self, start: int) -> str | None:
        """Gather the texts of the commands from `start` on. Returns as `run`."""
        inside = None
        script = self.script
        commands = islice(script.commands, start, None) if start else script.commands
        for index, command in enumerate(commands, start):  # scripts in arguments add to the list
            if script.unsure is not None:
                break
            for word in command.assignments:
                name = word.raw.partition("=")[0].rstrip("+")
                if decides_what_runs(name):
                    self.script.doubt(f"it sets {name}, which decides what runs")
                elif name == PATH:
                    self.script.path_set(word.text.partition("=")[2])
                self.script.evaluates = self.script.evaluates or calculates(name)
                self._add(word.text)
                if names_program(name):
                    self._add(word.text.partition("=")[2])
            if command.words:
                deeper = self._command(command.words, command, 0)
                inside = inside if index else deeper
                if command.assignments:
                    self._add(" ".join(word.text for word in (*command.assignments, *command.words)))
                if command.redirects:
                    targets = [f"{start}{' ' if op[-1] != '&' else ''}{to.text}" for start, op, to in command.redirects]
                    self._add(" ".join([*[word.text for word in command.words], *targets]))
            elif command.redirects:
                self._add(" ".join(f"{start} {to.text}" for start, _, to in command.redirects))
        return inside

    def _read_written_files(self) -> None:
        """Read the scripts that the line itself writes and runs; doubt if it writes one whose text is not known."""
        script = self.script
        written = find_written_files(script.commands)
        for command, program, words in script.input_readers if self.makes_fifo else ():
            script.run_files += [(word.text, program) for word in words[1:]]
            script.run_files += [(target.text, program) for _, _, target in command.redirects]
        for path, program in islice(script.run_files, _RUN_FILES_MAX) if written else ():  # scripts add to the list
            for file in written:
                if script.unsure is None and may_be_same_file(file.name, path):
                    self._read_written(file, program)
        if written and len(script.run_files) > _RUN_FILES_MAX:
            script.doubt("it writes files and runs too many")

    def _read_written(self, file: WrittenFile, program: str) -> None:
        script = self.script
        if file.copy_of:
            name = basename(file.copy_of)
            for text in [text for text in self.texts if may_be_same_file(text.partition(" ")[0], file.name)]:
                self._add(" ".join((name, text.partition(" ")[2])).rstrip())
        elif file.text is None:
            if not program or file.is_fifo:
                script.doubt("it runs a file that it writes itself")
        elif program:
            if file.is_fifo and starts_programs(file.text, language_of(program)):
                script.doubt(f"{program!r} may run what the line writes for it")
        else:
            first = len(script.commands)
            read_script(file.text, script, 2)
            self._gather(first)

    def _add(self, text: str) -> None:
        self.left -= len(text) + 1
        if self.left < 0:
            self.script.doubt("it runs too many commands")
        else:
            self.texts[text] = None

    def _command(self, words: list[Word], command: ShellCommand, depth: int) -> str | None:
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
            values = _GLOBAL_VALUES.get(name, frozenset())
            index = 1
            while index < len(texts) and texts[index][:1] == "-":
                index += 2 if texts[index] in values else 1
            rest = texts[index:]
            if rest:
                self._add(" ".join((name, *rest)))
        known = program_name(program)
        if known in RUNS_OTHERS:
            if known in ANY_WORD and len(texts) > 1:
                self.loose.append(tuple(texts[1:]))
            return self._read_nested(known, words, texts, command, depth)
        if known not in ORDINARY:
            if len(texts) > 1:
                self.loose.append(tuple(texts[1:]))
            if "/" in program:
                self.script.run_files.append((program, ""))
        elif known in FIFOS:
            self.makes_fifo = True
        return None

    def _read_nested(
        self, name: str, words: list[Word], texts: list[str], command: ShellCommand, depth: int
    ) -> str | None:
        inside: str | None = None
        named = 0
        for nested in find_nested(name, words, texts, command, self.script):
            if nested.named:
                named = max(named, nested.named)
                continue
            if depth >= _NESTED_MAX:
                self.script.doubt("it runs commands within commands without end")
            if self.script.unsure is not None:
                break  # every deny applies already
            if nested.aside and nested.words:
                self._command(nested.words, command, depth + 1)
                continue
            inside = UNKNOWN  # no rule can spell it out, unless it is words of this line
            if nested.doubt is not None:
                self.script.doubt(nested.doubt)
            elif nested.script is not None:
                self.script.compound = True
                read_script(nested.script, self.script, depth + 2)
            elif nested.words:
                deeper = self._command(nested.words, command, depth + 1)
                own = nested.words[: len(nested.words) - nested.added]
                before = words[: len(words) - len(own) + 1]
                if words[-len(own) :] == own and deeper is None:
                    inside = " ".join(word.text for word in before)
                elif deeper is not None and deeper != UNKNOWN:
                    inside = " ".join((*(word.text for word in before[:-1]), deeper))
        if not named:
            return inside
        reached = " ".join(texts[:named])
        return inside if inside == UNKNOWN or len(reached) <= len(inside or "") else reached


def _sets(command: ShellCommand) -> bool:
    """Return whether it gives a variable a value for the commands after it."""
    return basename(command.words[0].text) in _SETTERS if command.words else bool(command.assignments)


# A fast path for command lines without special characters, which need no grammar: most of what an agent runs.

_LIST_MAX: Final = 500  # characters; bounds the number of commands, and longer lines are too rare to need the fast path
_GRAMMAR: Final = "if|then|elif|else|fi|for|select|while|until|do|done|case|esac|in|function|coproc|time"
_PROGRAM: Final = rf"(?!(?:{_GRAMMAR})(?:[ ;]|$))[A-Za-z0-9_./@%+,:^-]+"
_PLAIN: Final = r"[A-Za-z0-9_./@%+,:=^-]+"
_QUOTED: Final = r""""[A-Za-z0-9_./@%+,:;=^#()<>|&' -]*"|'[A-Za-z0-9_./@%+,:;=^#()<>|&" -]*'"""
_REDIRECTS: Final = {  # as `ShellCommand` has them: what stands before the target, the operator, the target
    "2>&1": ("2>&", ">&", "1"),
    ">/dev/null": (">", ">", "/dev/null"),
    "2>/dev/null": ("2>", ">", "/dev/null"),
}
_OPERATORS: Final = frozenset({"&&", "||", "|", ";"})
_COMMAND: Final = rf"{_PROGRAM}(?: (?:{_PLAIN}|{_QUOTED}))*(?: (?:2>&1|2?>/dev/null))*"
_ONE: Final = re.compile(rf"{_PROGRAM}(?: {_PLAIN})*")
_LIST: Final = re.compile(rf"{_COMMAND}(?:(?: (?:&&|\|\|?)|;) {_COMMAND})*")
_PART: Final = re.compile(r"""'[^']*'|"[^"]*"|;|[^ ;]+""")


def fast_script(text: str) -> ShellScript | None:
    if text.count(" ") < WORDS_MAX and _ONE.fullmatch(text):
        script = ShellScript()
        command = ShellCommand()
        command.words = [Word(part, part) for part in text.split(" ")]
        script.commands.append(command)
    elif len(text) <= _LIST_MAX and _LIST.fullmatch(text):
        script = _script_of(_PART.findall(text))
    else:
        return None
    script.text = text
    script.spent = len(text)
    return script


def _script_of(parts: list[str]) -> ShellScript:
    script = ShellScript()
    command = ShellCommand()
    script.commands.append(command)
    for part in parts:
        if part in _OPERATORS:
            script.compound = True
            script.piped |= part == "|"
            command = ShellCommand()
            command.fed = script.piped
            script.commands.append(command)
        elif part in _REDIRECTS:
            start, operator, target = _REDIRECTS[part]
            command.redirects.append((start, operator, Word(target, target)))
        elif part[0] in "'\"":
            command.words.append(Word(part[1:-1], part, plain=False))
        else:
            command.words.append(Word(part, part))
    return script
