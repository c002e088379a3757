"""Words of a shell: quoting, expansions, substitutions, and the values that a script is made of.

`WordReader` reads one word at a time from a text. The content of a substitution is read by `commands`, the
body of backticks by `read_nested`; the module `grammar` implements both. A backslash at the end of a line joins it with
the next before anything else is read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Final

from lyra.core.limits import COMMANDS_MAX, WORDS_MAX
from lyra.tools.shell.text_glob import PATH, UNKNOWN, calculates, decides_what_runs, is_relative_path

# What matters when lines are joined: quotes, escapes, comments, and where a heredoc begins.
_LEXEME: Final = re.compile(
    r"\\\n|\\.|\$?'[^'\\]*'|\$'(?:[^'\\]|\\.)*'|'[^']*'"
    r"|\$\([^'\"`#<>()\\$\n]*\)|\$\{[A-Za-z0-9_]+\}|\$[({[]|<<|\n|[^\\'\"#<\n$`]+|.",
    re.DOTALL,
)
_LEXEMES_MAX: Final = 16_384  # a text with more is in doubt
_BEFORE_COMMENT: Final = frozenset(" \t\n;&|<>()`")


def join_lines(text: str, position: int) -> tuple[str, bool]:
    """Return the text with its continued lines joined from `position` on, and whether the result is in doubt.

    Within single quotes, comments and heredocs nothing is joined. A substitution within quotes is not
    parsed here, so a continued line after one is in doubt.
    """
    out, quoted, doubt = [text[:position]], False, False
    waits = False  # a heredoc's body begins after this line
    while position < len(text) and not doubt:
        if len(out) > _LEXEMES_MAX:
            return text, True
        lexeme = _LEXEME.match(text, position)
        assert lexeme is not None
        piece = lexeme[0]
        if piece == "\\\n":
            doubt = text[position - 1 : position] == "$" and text.startswith(("'", '"'), lexeme.end())
            piece = ""
        elif quoted:
            if piece[0] == "'" or piece[0] == "#" or piece[:2] in ("$'", "<<"):
                piece = piece[0]  # not special within double quotes
            quoted = piece != '"'
            follows = piece == "$" and text.startswith("\\\n", position + 1)
            doubt = (follows or piece in ("`", "$(", "${", "$[")) and text.find("\\\n", position) >= 0
        elif piece == '"':
            quoted = True
        elif piece[0] == "#":
            if position == 0 or text[position - 1] in _BEFORE_COMMENT:
                end = text.find("\n", position)
                end = len(text) if end < 0 else end
                doubt = text[end - 1] == "\\" or any(opener in text for opener in ("((", "[[", "$["))
                piece = text[position:end]
        elif piece == "<<":
            waits = not text.startswith("<", position + 2)
            piece = piece if waits else "<<<"
        elif piece == "\n" and waits:
            break
        out.append(piece)
        position = lexeme.end() if piece in ("", lexeme[0]) else position + len(piece)
    out.append(text[position:])
    return "".join(out), doubt


DEPTH_MAX: Final = 40  # expansions, groups and scripts within one another
_PIECES_MAX: Final = 16_384  # quotes, escapes, wildcards and plain parts of one word
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,^~\]\-]+")
_WHOLE: Final = re.compile(r"[A-Za-z0-9_./:=@%+,^~\]\-]+(?=[ \t\n;&|)]|$)")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]")
WORD_END: Final = frozenset(" \t\n;&|<>()")
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_ANSI: Final = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.))",
    re.DOTALL,
)
# A substitution, also where its first character is written as a number.
_CODE: Final = re.compile(r"`|\$[({]|\\(?:x24|0?44|[uU]0*24|x60|0?140)")
_SET_BY_DEFAULT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::?=|\[)")  # or an element of an array
_BLANKS: Final = frozenset({" ", "\t"})
_DEFAULTS: Final = frozenset("-=+?")  # after `${x:`; any other character begins an expression
_IN_QUOTES: Final = re.compile(r'[^"\\$`]+')
_ANSI_BODY: Final = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)


class Word:
    """One word. `text` is what the command gets, with `UNKNOWN` for what only the shell knows."""

    __slots__ = ("expands", "globs", "plain", "raw", "text")

    def __init__(self, text: str, raw: str, *, expands: bool = False, globs: bool = False, plain: bool = True) -> None:
        self.text = text
        self.raw = raw
        self.expands = expands  # a variable, a substitution, arithmetic or braces are in it
        self.globs = globs  # the shell may replace it by names of files
        self.plain = plain  # no quote, escape or wildcard in it


class ShellCommand:
    """One simple command: its words, the assignments before them, and its redirections."""

    __slots__ = ("assignments", "documents", "fed", "redirects", "span", "words")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.redirects: list[tuple[str, str, Word]] = []  # (text before the target, operator, target)
        self.documents: list[str] = []  # bodies of heredocs
        self.fed = False  # a pipe stands before it
        self.span = (0, 0)


class ShellScript:
    """All commands found in one text, and what is special about it."""

    def __init__(self) -> None:
        self.commands: list[ShellCommand] = []
        self.compound = False  # more than one simple command: an operator, a group, a substitution
        self.piped = False
        self.defines = False  # a function, which runs where it is called
        # Programs that may run code from an input that another command of the line opens.
        self.input_readers: list[tuple[ShellCommand, str, list[Word]]] = []  # (command, program, words)
        self.sets_path = False  # of programs
        self.spent = 0  # characters read; nested texts count again
        self.text = ""  # the outermost text, with continued lines joined
        self.evaluates = False  # does arithmetic with variables, whose values a shell evaluates as expressions
        self.quotes_code = False  # has a text with a substitution in it that nothing expands yet
        self.run_files: list[tuple[str, str]] = []  # (file, program that runs it; "" for a shell)
        self.sets = False  # gives a variable a value
        self.unsure: str | None = None
        self.words_left = WORDS_MAX

    def count_words(self, number: int = 1) -> bool:
        """Count words that were read; False, and a doubt, if there are more than are checked."""
        self.words_left -= number
        if self.words_left < 0:
            self.doubt(f"it has more than {WORDS_MAX} words")
        return self.words_left >= 0

    def doubt(self, why: str) -> None:
        if self.unsure is None:
            self.unsure = why

    def path_set(self, value: str) -> None:
        """PATH gets this value, for one command or for the rest of the text."""
        self.sets_path = True
        if is_relative_path(value):
            self.doubt("it looks for programs in the current folder")

    def add(self, command: ShellCommand) -> None:
        if len(self.commands) >= COMMANDS_MAX:
            self.doubt(f"it has more than {COMMANDS_MAX} commands")
        else:
            self.commands.append(command)


class WordReader(ABC):
    """A position in a text, and readers of blanks, words and expansions from there on.

    A word can hold commands (`$(…)`) and a command holds words: the grammar gives the three readers that are abstract
    here.
    """

    __slots__ = ("depth", "end", "pending", "position", "script", "text")

    def __init__(self, text: str, script: ShellScript, depth: int) -> None:
        self.text = text
        self.end = len(text)
        self.position = 0
        self.script = script
        self.depth = depth
        self.pending: list[
            tuple[ShellCommand, str, bool, bool]
        ] = []  # heredocs: (command, delimiter, tabs cut, expands)

    @abstractmethod
    def commands(self, closing: str, *, case: bool = False) -> str:
        """Read commands up to what closes them."""

    @abstractmethod
    def read_nested(self, text: str) -> None:
        """Read a script inside this one."""

    @abstractmethod
    def heredocs(self, *, nested: bool = False) -> None:
        """After a newline: read the bodies that commands wait for."""

    def blank(self) -> None:
        text, position = self.text, self.position
        if position < self.end:
            char = text[position]
            if char not in " \t\\":
                return
            if char == " " and position + 1 < self.end and text[position + 1] not in " \t\\":  # the usual case
                self.position = position + 1
                return
        match = _BLANK.match(text, position)
        assert match is not None
        self.position = match.end()

    def comment(self) -> None:
        end = self.text.find("\n", self.position)
        self.position = self.end if end < 0 else end

    def blank_lines(self) -> None:
        while True:
            self.blank()
            char = self.text[self.position : self.position + 1]
            if char == "\n":
                self.position += 1
                self.heredocs(nested=True)
            elif char == "#":
                self.comment()
            else:
                return

    def join(self) -> None:
        """From here on take out each backslash at the end of a line, as a shell does before it reads anything.

        Up to a line with a heredoc: what comes after that is not read by the same rules.
        """
        if self.text.find("\\\n", self.position) < 0:
            return
        joined, doubt = join_lines(self.text, self.position)
        if doubt:
            self.script.doubt("it joins lines in a way that cannot be told from quoting")
        self.text, self.end = joined, len(joined)

    # ------------------------------------------------------------ words
    def word(self, *, first: bool = False) -> Word:
        if not self.script.count_words():
            self.position = self.end
        text, start = self.text, self.position
        whole = _WHOLE.match(text, start)
        if whole is not None:  # most words have no special characters
            self.position = whole.end()
            return Word(whole[0], whole[0])
        out: list[str] = []
        expands, globs, plain = False, False, True
        while self._has_more(out):
            plain_part = _PLAIN.match(text, self.position)
            if plain_part is not None:
                out.append(plain_part[0])
                self.position = plain_part.end()
                continue
            char = text[self.position]
            if char in WORD_END:
                if text.startswith(("<(", ">("), self.position):
                    self.position += 2
                    self._substitution(out)
                    expands = True
                elif char == "(" and first and ASSIGNMENT.fullmatch(text, start, self.position):
                    self._array(out)
                    expands = True
                elif char == "(" and self.position > start and text[self.position - 1] in "?*+@!":
                    self.script.doubt("it holds an extended pattern")
                    self.position += 1
                elif self.position == start:  # no word begins with this character
                    out.append(char)
                    self.position += 1
                    break
                else:
                    break
            elif char in "\\'\"":
                expands |= self._read_quoted(char, out)
                plain = False
            elif char == "$":
                expands |= self._dollar(out, quoted=False)
                plain = False
            elif char == "`":
                self._backtick(out, quoted=False)
                expands, plain = True, False
            else:
                wild = char in "*?[{" and self._is_wild(char, start)
                out.append(UNKNOWN if wild else char)
                self.position += 1
                globs, plain, expands = globs or wild, plain and not wild, expands or (wild and char == "{")
        self.position = min(self.position, self.end)
        whole_text = "".join(out)
        if not plain:
            self._keep_code(whole_text)
        return Word(whole_text, text[start : self.position], expands=expands, globs=globs, plain=plain)

    def _has_more(self, pieces: list[str]) -> bool:
        """Return whether a word may continue; a word of too many pieces is a doubt, and the rest of the text is
        skipped."""
        if len(pieces) > _PIECES_MAX:
            self.script.doubt(f"a word in it has more than {_PIECES_MAX} pieces")
            self.position = self.end
        return self.position < self.end

    def _read_quoted(self, char: str, out: list[str]) -> bool:
        """Return what a backslash or a quote begins; True when something expands in it."""
        if char == "'":
            out.append(self._single())
        elif char == '"':
            self.position += 1
            return self._double(out)
        else:
            following = self.text[self.position + 1 : self.position + 2]
            out.append(following)
            self.position += 2
        return False

    def _is_wild(self, char: str, start: int) -> bool:
        if char == "[":  # alone it is the program of that name
            return self.position > start or self.text[start + 1 : start + 2] not in _BLANKS
        return char != "{" or self._braces(start)

    def _braces(self, start: int) -> bool:
        """Return whether a `{` may be a brace expansion: not `{}` and not the `{` of a group."""
        following = self.text[self.position + 1 : self.position + 2]
        return not (following == "}" or (self.position == start and (following == "" or following in " \t\n;")))

    def _single(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            self.script.doubt("a quote in it is not closed")
            end = self.end
        body = self.text[self.position + 1 : end]
        self.position = end + 1
        return body

    def _double(self, out: list[str]) -> bool:
        """Up to the closing `"`; True when something expands in it."""
        expands = False
        text = self.text
        while self.position < self.end:
            char = text[self.position]
            if char == '"':
                self.position += 1
                return expands
            if char == "\\":
                following = text[self.position + 1 : self.position + 2]
                out.append(following if following in ("$", "`", '"', "\\") else char + following)
                self.position += 2
            elif char == "$":
                expands |= self._dollar(out, quoted=True)
            elif char == "`":
                self._backtick(out, quoted=True)
                expands = True
            else:
                match = _IN_QUOTES.match(text, self.position)
                assert match is not None
                out.append(match[0])
                self.position = match.end()
        self.script.doubt("a quote in it is not closed")
        return True

    def _array(self, out: list[str]) -> None:
        self.position += 1
        out.append(UNKNOWN)
        while True:
            self.blank_lines()
            if self.position >= self.end:
                self.script.doubt("an array in it is not closed")
                return
            if self.text[self.position] == ")":
                self.position += 1
                return
            if self.text[self.position] in WORD_END and not self.text.startswith(("<(", ">("), self.position):
                self.script.doubt("an array in it cannot be read")
                self.position = self.end
            else:
                self.script.evaluates |= self.text[self.position] == "["  # an index
                self.word()

    # ------------------------------------------------------------ expansions
    def _dollar(self, out: list[str], *, quoted: bool) -> bool:
        """Return what a `$` begins; True when it expands."""
        if not self.deeper():
            return True
        try:
            return self._dollar_form(out, quoted=quoted)
        finally:
            self.depth -= 1

    def deeper(self) -> bool:
        """Enter one more level of nesting; False, with the rest of the text skipped, if there are too many."""
        if self.depth >= DEPTH_MAX:
            self.script.doubt(f"it is nested more than {DEPTH_MAX} deep")
            self.position = self.end
            return False
        self.depth += 1
        return True

    def _dollar_form(self, out: list[str], *, quoted: bool) -> bool:
        text = self.text
        following = text[self.position + 1 : self.position + 2]
        if following == "(":
            arithmetic = text.startswith("((", self.position + 1)
            self.position += 3 if arithmetic else 2
            if arithmetic:
                out.append(UNKNOWN)
                self.arithmetic()
            else:
                self._substitution(out)
        elif following == "{":
            self.position += 2
            out.append(UNKNOWN)
            self._parameter(quoted=quoted)
        elif following == "[":
            self.position += 2
            out.append(UNKNOWN)
            self.script.evaluates = True
            self.expansions("]")
        elif following == "'" and not quoted:
            out.append(self._ansi())
            return False
        elif following == '"' and not quoted:
            self.position += 2
            return self._double(out)
        else:
            match = _PARAMETER.match(text, self.position + 1)
            if match is None:
                out.append("$")
                self.position += 1
                return False
            out.append(UNKNOWN)
            self.position = match.end()
        return True

    def _substitution(self, out: list[str]) -> None:
        out.append(UNKNOWN)
        self.script.compound = True
        self.script.piped |= self.text[self.position - 2] == ">"  # `>(…)`: its commands read what is written to it
        pending, self.pending = self.pending, []
        self.commands(")")
        self.pending = pending + self.pending

    def arithmetic(self) -> None:
        """Up to `))`. A single `)` before that means that it was two nested groups."""
        opened = 0
        self.script.evaluates = True
        while self.position < self.end:
            char = self.text[self.position]
            if char in "\"'":
                self.script.doubt("it quotes within arithmetic")
            if char == "(":
                opened += 1
            elif char == ")":
                if opened == 0:
                    break
                opened -= 1
            elif self._read_expansion(char):
                continue
            self.position += 1
        if self.text.startswith("))", self.position):
            self.position += 2
            return
        self.script.doubt("it holds arithmetic that cannot be told from groups")
        self.position += 1

    def _parameter(self, *, quoted: bool) -> None:
        """Up to the `}` of `${…}`."""
        start = self.position
        if self.text[start : start + 1] in (" ", "\t", "\n", "|"):
            self.script.doubt("it holds a substitution in braces")
        self.script.evaluates |= self.text.startswith("!", start)  # `${!x}`: the value of x is the name
        match = _SET_BY_DEFAULT.match(self.text, start)
        if match is not None:
            self.note_assignment(match[1])
        while self.position < self.end:
            char = self.text[self.position]
            if char in ":[":
                following = self.text[self.position + 1 : self.position + 2]
                self.script.evaluates |= char == "[" or following not in _DEFAULTS
            if char == "}":
                if self.text.endswith("@P", start, self.position):
                    self.script.doubt("it expands a variable as a prompt")
                self.position += 1
                return
            if char == "'":
                if quoted:
                    self.script.doubt("it quotes within an expansion within quotes")
                    self.position += 1
                else:
                    self._keep_code(self._single())
            elif char == '"':
                self.position += 1
                out: list[str] = []
                self._double(out)
                self._keep_code("".join(out))
            elif char in "<>" and self.text.startswith("(", self.position + 1):
                self.position += 2
                if quoted:
                    self.script.doubt("it may substitute a process within an expansion")
                else:
                    self._substitution([])
            elif not self._read_expansion(char):
                self.position += 1
        self.script.doubt("an expansion in it is not closed")

    def _keep_code(self, text: str) -> None:
        if not self.script.quotes_code:
            # Whether a substitution is in the text, or an index of an array that may continue with one: `'a[$'`.
            self.script.quotes_code = _CODE.search(text) is not None or (text.endswith(("$", "$\n")) and "[" in text)

    def note_assignment(self, name: str) -> None:
        """Note that a variable gets a value by the grammar itself: `${x:=…}`, `for x in …`."""
        if decides_what_runs(name) or name == PATH:
            self.script.doubt(f"it sets {name}, which decides what runs")
        self.script.evaluates |= calculates(name)

    def expansions(self, closing: str) -> None:
        """Text in which only expansions mean something: a heredoc's body, `$[…]`."""
        while self.position < self.end:
            char = self.text[self.position]
            if closing and char == closing:
                self.position += 1
                return
            if not self._read_expansion(char):
                self.position += 1
        if closing:
            self.script.doubt("an expansion in it is not closed")

    def _read_expansion(self, char: str) -> bool:
        """Read one expansion, if one begins here."""
        if char == "\\":
            self._keep_code(self.text[self.position + 1 : self.position + 3])
            self.position += 2
        elif char == "$":
            self._dollar([], quoted=True)
        elif char == "`":
            self._backtick([], quoted=True)
        else:
            return False
        return True

    def _backtick(self, out: list[str], *, quoted: bool) -> None:
        out.append(UNKNOWN)
        self.script.compound = True
        if self.script.unsure is not None:
            self.position = self.end
            return
        body: list[str] = []
        position, text = self.position + 1, self.text
        while position < self.end and text[position] != "`":
            if text[position] == "\\" and position + 1 < self.end:
                following = text[position + 1]
                drop = following in "`\\$" or (quoted and following == '"')
                body.append(following if drop else text[position : position + 2])
                position += 2
            else:
                body.append(text[position])
                position += 1
        if position >= self.end:
            self.script.doubt("a '`' in it is not closed")
        self.position = min(position + 1, self.end)
        self.read_nested("".join(body))

    def _ansi(self) -> str:
        match = _ANSI_BODY.match(self.text, self.position + 2)
        if match is None:
            self.script.doubt("a quote in it is not closed")
            self.position = self.end
            return UNKNOWN
        self.position = match.end()
        if "\\x{" in match[0]:
            self.script.doubt("it writes a character in a way that not every shell reads")
        text = _ANSI.sub(_ansi_character, match[0][:-1])
        return text.partition("\0")[0]  # a shell cuts the text at a NUL


def _ansi_character(match: re.Match[str]) -> str:
    named, *numbers, control = match.groups()
    if named is not None:
        return _ESCAPES[named]
    if control is not None:
        return chr(ord(control) & 0x1F)
    for digits, base in zip(numbers, (16, 16, 16, 8), strict=True):
        if digits is not None:
            code = int(digits, base)
            return chr(code & 0xFF) if base == 8 else chr(code) if code < 0x110000 else UNKNOWN
    return UNKNOWN
