"""Words of a shell: quoting, expansions, substitutions, and the values that a script is made of.

`WordReader` reads one word at a time from a text. What a substitution holds it hands to `commands`, and the body of a
backtick to `nested`; both are the grammar's, in `shell`, which is built on this.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.limits import COMMANDS_MAX
from lyra.tools.shell.lines import joined_lines
from lyra.tools.shell.text_glob import UNKNOWN
from lyra.tools.shell.variables import calculates, decides_what_runs

__all__ = ["ASSIGNMENT", "DEPTH_MAX", "WORD_END", "Command", "Script", "Word", "WordReader"]

DEPTH_MAX: Final = 40  # expansions, groups and scripts within one another
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
_CODE: Final = re.compile(r"`|\$[({]|\[.*\$$|\\(?:x24|0?44|[uU]0*24|x60|0?140)", re.DOTALL)
_SET_BY_DEFAULT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::?=|\[)")  # or a place in it, whatever is done there
_BLANKS: Final = frozenset({" ", "\t"})
_IN_QUOTES: Final = re.compile(r'[^"\\$`]+')
_ANSI_BODY: Final = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)


class Word:
    """One word. `text` is what the command gets, with `UNKNOWN` for what only the shell knows."""

    __slots__ = ("expands", "globs", "plain", "raw", "text")

    def __init__(self, text: str, raw: str, *, expands: bool = False, globs: bool = False, plain: bool = True) -> None:
        self.text = text
        self.raw = raw
        self.expands = expands  # a variable, a substitution, arithmetic or braces are in it
        self.globs = globs  # names of files may take its place
        self.plain = plain  # no quote, escape or wildcard in it: it is what it looks like


class Command:
    """One simple command: its words, what stands before them, and what it reads and writes."""

    __slots__ = ("assignments", "documents", "fed", "redirects", "span", "words")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.redirects: list[tuple[str, str, Word]] = []  # as written before the target, the operator, the target
        self.documents: list[str] = []  # bodies of heredocs
        self.fed = False  # a pipe stands before it
        self.span = (0, 0)


class Script:
    """What was found in one text."""

    __slots__ = (
        "commands",
        "compound",
        "defines",
        "evaluates",
        "hungry",
        "piped",
        "quotes_code",
        "sets",
        "spent",
        "text",
        "unsure",
    )

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.compound = False  # more than one simple command: an operator, a group, a substitution
        self.piped = False
        self.defines = False  # a function, which runs where it is called
        self.hungry: list[tuple[Command, str, list[Word]]] = []  # may take orders from an input that others name
        self.spent = 0  # characters read, texts inside texts counted again
        self.text = ""  # of the outermost, with its lines joined
        self.evaluates = False  # does arithmetic with variables, whose values a shell evaluates in turn
        self.quotes_code = False  # has a text with a substitution in it that nothing expands yet
        self.sets = False  # gives a variable a value
        self.unsure: str | None = None

    def doubt(self, why: str) -> None:
        if self.unsure is None:
            self.unsure = why

    def add(self, command: Command) -> None:
        if len(self.commands) >= COMMANDS_MAX:
            self.doubt(f"it has more than {COMMANDS_MAX} commands")
        else:
            self.commands.append(command)


class WordReader:
    """A place in a text, and what can be read there that is not a command."""

    __slots__ = ("at", "depth", "end", "pending", "script", "text")

    def __init__(self, text: str, script: Script, depth: int) -> None:
        self.text = text
        self.end = len(text)
        self.at = 0
        self.script = script
        self.depth = depth
        self.pending: list[tuple[Command, str, bool, bool]] = []  # heredocs: of, delimiter, tabs cut, expands

    def commands(self, closing: str, *, case: bool = False) -> str:
        """Read commands up to what closes them; the grammar's."""
        raise NotImplementedError

    def nested(self, text: str) -> None:
        """Read a script inside this one; the grammar's."""
        raise NotImplementedError

    def heredocs(self, *, nested: bool = False) -> None:
        """After a newline: read the bodies that commands wait for; the grammar's."""
        raise NotImplementedError

    def blank(self) -> None:
        text, at = self.text, self.at
        if at < self.end:
            char = text[at]
            if char not in " \t\\":
                return
            if char == " " and at + 1 < self.end and text[at + 1] not in " \t\\":  # the usual one
                self.at = at + 1
                return
        found = _BLANK.match(text, at)
        assert found is not None
        self.at = found.end()

    def comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = self.end if end < 0 else end

    def blank_lines(self) -> None:
        while True:
            self.blank()
            char = self.text[self.at : self.at + 1]
            if char == "\n":
                self.at += 1
                self.heredocs(nested=True)
            elif char == "#":
                self.comment()
            else:
                return

    def join(self) -> None:
        """From here on take out each backslash at the end of a line, as a shell does before it reads anything.

        Up to a line with a heredoc: what comes after that is not read by the same rules.
        """
        if self.text.find("\\\n", self.at) < 0:
            return
        joined, doubt = joined_lines(self.text, self.at)
        if doubt:
            self.script.doubt("it joins lines in a way that cannot be told from quoting")
        self.text, self.end = joined, len(joined)

    # ------------------------------------------------------------ words
    def word(self, *, first: bool = False) -> Word:
        text, start = self.text, self.at
        whole = _WHOLE.match(text, start)
        if whole is not None:  # most words are nothing but themselves
            self.at = whole.end()
            return Word(whole[0], whole[0])
        out: list[str] = []
        expands, globs, plain = False, False, True
        while self.at < self.end:
            found = _PLAIN.match(text, self.at)
            if found is not None:
                out.append(found[0])
                self.at = found.end()
                continue
            char = text[self.at]
            if char in WORD_END:
                if text.startswith(("<(", ">("), self.at):
                    self.at += 2
                    self._substitution(out)
                    expands = True
                elif char == "(" and first and ASSIGNMENT.fullmatch(text, start, self.at):
                    self._array(out)
                    expands = True
                elif char == "(" and self.at > start and text[self.at - 1] in "?*+@!":
                    self.script.doubt("it holds an extended pattern")
                    self.at += 1
                elif self.at == start:  # the caller met a character that begins no word
                    out.append(char)
                    self.at += 1
                    break
                else:
                    break
            elif char in "\\'\"":
                expands |= self._quoted(char, out)
                plain = False
            elif char == "$":
                expands |= self._dollar(out, quoted=False)
                plain = False
            elif char == "`":
                self._backtick(out, quoted=False)
                expands, plain = True, False
            elif char in "*?[{" and self._is_wild(char, start):
                out.append(UNKNOWN)
                self.at += 1
                globs, plain = True, False
                expands |= char == "{"
            else:
                out.append(char)
                self.at += 1
        self.at = min(self.at, self.end)
        whole_text = "".join(out)
        self.script.quotes_code |= not plain and _CODE.search(whole_text) is not None
        return Word(whole_text, text[start : self.at], expands=expands, globs=globs, plain=plain)

    def _quoted(self, char: str, out: list[str]) -> bool:
        """What a backslash or a quote begins; True when something expands in it."""
        if char == "'":
            out.append(self._single())
        elif char == '"':
            self.at += 1
            return self._double(out)
        else:
            following = self.text[self.at + 1 : self.at + 2]
            out.append(following)
            self.at += 2
        return False

    def _is_wild(self, char: str, start: int) -> bool:
        if char == "[":  # alone it is the program of that name
            return self.at > start or self.text[start + 1 : start + 2] not in _BLANKS
        return char != "{" or self._braces(start)

    def _braces(self, start: int) -> bool:
        """Whether a `{` may be a brace expansion: not `{}` and not the `{` of a group."""
        following = self.text[self.at + 1 : self.at + 2]
        return not (following == "}" or (self.at == start and (following == "" or following in " \t\n;")))

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            self.script.doubt("a quote in it is not closed")
            end = self.end
        body = self.text[self.at + 1 : end]
        self.at = end + 1
        return body

    def _double(self, out: list[str]) -> bool:
        """Up to the closing `"`; True when something expands in it."""
        expands = False
        text = self.text
        while self.at < self.end:
            char = text[self.at]
            if char == '"':
                self.at += 1
                return expands
            if char == "\\":
                following = text[self.at + 1 : self.at + 2]
                out.append(following if following in ("$", "`", '"', "\\") else char + following)
                self.at += 2
            elif char == "$":
                expands |= self._dollar(out, quoted=True)
            elif char == "`":
                self._backtick(out, quoted=True)
                expands = True
            else:
                found = _IN_QUOTES.match(text, self.at)
                assert found is not None
                out.append(found[0])
                self.at = found.end()
        self.script.doubt("a quote in it is not closed")
        return True

    def _array(self, out: list[str]) -> None:
        self.at += 1
        out.append(UNKNOWN)
        while True:
            self.blank_lines()
            if self.at >= self.end:
                self.script.doubt("an array in it is not closed")
                return
            if self.text[self.at] == ")":
                self.at += 1
                return
            if self.text[self.at] in WORD_END and not self.text.startswith(("<(", ">("), self.at):
                self.script.doubt("an array in it cannot be read")
                self.at += 1
            else:
                self.script.evaluates |= self.text[self.at] == "["  # an index
                self.word()

    # ------------------------------------------------------------ expansions
    def _dollar(self, out: list[str], *, quoted: bool) -> bool:
        """What a `$` begins; True when it expands."""
        if not self.deeper():
            return True
        try:
            return self._dollar_form(out, quoted=quoted)
        finally:
            self.depth -= 1

    def deeper(self) -> bool:
        """One level down, unless that is too many; then the rest of the text is given up."""
        if self.depth >= DEPTH_MAX:
            self.script.doubt(f"it is nested more than {DEPTH_MAX} deep")
            self.at = self.end
            return False
        self.depth += 1
        return True

    def _dollar_form(self, out: list[str], *, quoted: bool) -> bool:
        text = self.text
        following = text[self.at + 1 : self.at + 2]
        if following == "(":
            arithmetic = text.startswith("((", self.at + 1)
            self.at += 3 if arithmetic else 2
            if arithmetic:
                out.append(UNKNOWN)
                self.arithmetic()
            else:
                self._substitution(out)
        elif following == "{":
            self.at += 2
            out.append(UNKNOWN)
            self._parameter(quoted=quoted)
        elif following == "[":
            self.at += 2
            out.append(UNKNOWN)
            self.script.evaluates = True
            self.expansions("]")
        elif following == "'" and not quoted:
            out.append(self._ansi())
            return False
        elif following == '"' and not quoted:
            self.at += 2
            return self._double(out)
        else:
            found = _PARAMETER.match(text, self.at + 1)
            if found is None:
                out.append("$")
                self.at += 1
                return False
            out.append(UNKNOWN)
            self.at = found.end()
        return True

    def _substitution(self, out: list[str]) -> None:
        out.append(UNKNOWN)
        self.script.compound = True
        self.script.piped |= self.text[self.at - 2] == ">"  # what is in it reads what is written there
        pending, self.pending = self.pending, []
        self.commands(")")
        self.pending = pending + self.pending

    def arithmetic(self) -> None:
        """Up to `))`. A single `)` first means that it was two groups after all."""
        opened = 0
        self.script.evaluates = True
        while self.at < self.end:
            char = self.text[self.at]
            if char in "\"'":
                self.script.doubt("it quotes within arithmetic")
            if char == "(":
                opened += 1
            elif char == ")":
                if opened == 0:
                    break
                opened -= 1
            elif self._expanded(char):
                continue
            self.at += 1
        if self.text.startswith("))", self.at):
            self.at += 2
            return
        self.script.doubt("it holds arithmetic that cannot be told from groups")
        self.at += 1

    def _parameter(self, *, quoted: bool) -> None:
        """Up to the `}` of `${…}`."""
        start = self.at
        if self.text[start : start + 1] in (" ", "\t", "\n", "|"):
            self.script.doubt("it holds a substitution in braces")
        self.script.evaluates |= self.text.startswith("!", start)  # the name itself is a value
        found = _SET_BY_DEFAULT.match(self.text, start)
        if found is not None:
            self.assigned(found[1])
        while self.at < self.end:
            char = self.text[self.at]
            if char in ":[":
                self.script.evaluates |= char == "[" or self.text[self.at + 1 : self.at + 2] not in tuple("-=+?")
            if char == "}":
                if self.text.endswith("@P", start, self.at):
                    self.script.doubt("it expands a variable as a prompt")
                self.at += 1
                return
            if char == "'":
                if quoted:
                    self.script.doubt("it quotes within an expansion within quotes")
                    self.at += 1
                else:
                    self._keep_code(self._single())
            elif char == '"':
                self.at += 1
                out: list[str] = []
                self._double(out)
                self._keep_code("".join(out))
            elif char in "<>" and self.text.startswith("(", self.at + 1):
                self.at += 2
                if quoted:
                    self.script.doubt("it may substitute a process within an expansion")
                else:
                    self._substitution([])
            elif not self._expanded(char):
                self.at += 1
        self.script.doubt("an expansion in it is not closed")

    def _keep_code(self, text: str) -> None:
        self.script.quotes_code |= _CODE.search(text) is not None

    def assigned(self, name: str) -> None:
        """A variable gets a value by the grammar itself: `${x:=…}`, `for x in …`."""
        if decides_what_runs(name):
            self.script.doubt(f"it sets {name}, which decides what runs")
        self.script.evaluates |= calculates(name)

    def expansions(self, closing: str) -> None:
        """Text in which only expansions mean something: a heredoc's body, `$[…]`."""
        while self.at < self.end:
            char = self.text[self.at]
            if closing and char == closing:
                self.at += 1
                return
            if not self._expanded(char):
                self.at += 1
        if closing:
            self.script.doubt("an expansion in it is not closed")

    def _expanded(self, char: str) -> bool:
        """Read one expansion, if one begins here."""
        if char == "\\":
            self._keep_code(self.text[self.at + 1 : self.at + 3])
            self.at += 2
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
            self.at = self.end
            return
        body: list[str] = []
        at, text = self.at + 1, self.text
        while at < self.end and text[at] != "`":
            if text[at] == "\\" and at + 1 < self.end:
                following = text[at + 1]
                drop = following in "`\\$" or (quoted and following == '"')
                body.append(following if drop else text[at : at + 2])
                at += 2
            else:
                body.append(text[at])
                at += 1
        if at >= self.end:
            self.script.doubt("a '`' in it is not closed")
        self.at = min(at + 1, self.end)
        self.nested("".join(body))

    def _ansi(self) -> str:
        found = _ANSI_BODY.match(self.text, self.at + 2)
        if found is None:
            self.script.doubt("a quote in it is not closed")
            self.at = self.end
            return UNKNOWN
        self.at = found.end()
        if "\\x{" in found[0]:
            self.script.doubt("it writes a character in a way that not every shell reads")
        text = _ANSI.sub(_ansi_character, found[0][:-1])
        return text.partition("\0")[0]  # a shell's text ends there


def _ansi_character(found: re.Match[str]) -> str:
    named, *numbers, control = found.groups()
    if named is not None:
        return _ESCAPES[named]
    if control is not None:
        return chr(ord(control) & 0x1F)
    for digits, base in zip(numbers, (16, 16, 16, 8), strict=True):
        if digits is not None:
            code = int(digits, base)
            return chr(code & 0xFF) if base == 8 else chr(code) if code < 0x110000 else UNKNOWN
    return UNKNOWN
