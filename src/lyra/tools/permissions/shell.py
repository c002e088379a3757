"""Every command in a line of shell: a reader of POSIX sh and bash that would rather doubt than miss one.

`read_script(text)` gives a `Script`: the simple commands found anywhere in it (chained, in groups, loops, functions,
substitutions, heredocs), each with its words as the shell would see them after quoting, and `unsure`, which is set
when a part could not be read for certain. It runs nothing and expands nothing: what only a shell can know (a
variable, a substitution's output, a file glob) stands in a word as `UNKNOWN`.

It is not a checker of syntax. Where a line is wrong or has two readings, it finds too many commands or is unsure; it
must never find too few. What commands run in turn (`sudo`, `xargs`, `bash -c`) is told in `wrappers`.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.limits import CAPABILITY_LENGTH_MAX, COMMANDS_MAX
from lyra.tools.permissions.text_glob import UNKNOWN

__all__ = ["Command", "Script", "Word", "read_script"]

_DEPTH_MAX: Final = 24  # scripts within scripts
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./:=@%+,^~\]\-]+")
_BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
_REDIRECT: Final = re.compile(r"(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>|&>")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_EMPTY_PARENS: Final = re.compile(r"\([ \t]*\)")
_FUNCTION: Final = re.compile(r"[ \t]+[^\s;&|<>(){}'\"$`\\]+[ \t]*(?:\([ \t]*\))?")
_COPROC_NAME: Final = re.compile(r"[ \t]+[A-Za-z_][A-Za-z0-9_]*(?=[ \t]+(?:[{(]|(?:if|while|until|for|case|select)\b))")
_TIME_COMPOUND: Final = re.compile(r"[ \t]*(?:-p[ \t]+)?(?:[{(!]|(?:if|while|until|for|case|select|time)\b|\[\[)")
_PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]")
_OPENERS: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done"})
_WORD_END: Final = frozenset(" \t\n;&|<>()")
_ESCAPES: Final = {
    **{"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    **{"\\": "\\", "'": "'", '"': '"', "?": "?"},
}
_ANSI: Final = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.))", re.DOTALL
)
_ANSI_BODY: Final = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)


class Word:
    """One word. `text` is what the command gets, with `UNKNOWN` for what only the shell knows."""

    __slots__ = ("expands", "plain", "raw", "text")

    def __init__(self, text: str, raw: str, *, expands: bool = False, plain: bool = True) -> None:
        self.text = text
        self.raw = raw
        self.expands = expands  # a variable, a substitution or arithmetic is in it
        self.plain = plain  # no quote, escape or wildcard in it: it is what it looks like


class Command:
    """One simple command: its words, what stands before them, and what it reads and writes."""

    __slots__ = ("assignments", "documents", "redirects", "span", "words")

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.assignments: list[Word] = []
        self.redirects: list[tuple[str, str, Word]] = []  # as written before the target, the operator, the target
        self.documents: list[str] = []  # bodies of heredocs
        self.span = (0, 0)


class Script:
    """What was found in one text."""

    __slots__ = ("commands", "compound", "piped", "spent", "unsure")

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.compound = False  # more than one simple command: an operator, a group, a substitution
        self.piped = False
        self.spent = 0  # characters read, texts inside texts counted again
        self.unsure: str | None = None

    def doubt(self, why: str) -> None:
        if self.unsure is None:
            self.unsure = why

    def add(self, command: Command) -> None:
        if len(self.commands) >= COMMANDS_MAX:
            self.doubt(f"it has more than {COMMANDS_MAX} commands")
        else:
            self.commands.append(command)


def read_script(text: str, script: Script | None = None, depth: int = 0) -> Script:
    """Read a text; into a given Script, what it holds counts as one more part of it."""
    script = script if script is not None else Script()
    script.spent += len(text)
    if "\0" in text:
        script.doubt("it holds a NUL character")
    elif script.spent > CAPABILITY_LENGTH_MAX * 2:
        script.doubt(f"it is longer than {CAPABILITY_LENGTH_MAX} characters")
    elif depth > _DEPTH_MAX:
        script.doubt(f"it is nested more than {_DEPTH_MAX} deep")
    else:
        _Reader(text, script, depth).commands("")
    return script


class _Reader:
    __slots__ = ("at", "depth", "end", "pending", "script", "text")

    def __init__(self, text: str, script: Script, depth: int) -> None:
        self.text = text
        self.end = len(text)
        self.at = 0
        self.script = script
        self.depth = depth
        self.pending: list[tuple[Command, str, bool, bool]] = []  # heredocs: of, delimiter, tabs cut, expands

    # ------------------------------------------------------------ lists of commands
    def commands(self, closing: str, *, case: bool = False) -> str:
        """Read commands up to `closing` (`)`, or in a case clause `;;` or `esac`); say what ended it."""
        self.depth += 1
        try:
            if self.depth > _DEPTH_MAX:
                self.script.doubt(f"it is nested more than {_DEPTH_MAX} deep")
                self.at = self.end
                return ""
            return self._commands(closing, case)
        finally:
            self.depth -= 1

    def _commands(self, closing: str, case: bool) -> str:
        while True:
            self._blank()
            if self.at >= self.end:
                if closing or case:
                    self.script.doubt("something in it is not closed")
                return ""
            char = self.text[self.at]
            if char == "\n":
                self.at += 1
                self._heredocs()
            elif char == "#":
                self._comment()
            elif char == ")":
                self.at += 1
                if closing == ")":
                    return ")"
                self.script.doubt("a ')' in it closes nothing")
            elif char == ";" and case and self.text[self.at + 1 : self.at + 2] in (";", "&"):
                self.at += 3 if self.text.startswith(";;&", self.at) else 2
                return ";;"
            elif char in ";&|" and not self.text.startswith("&>", self.at):
                self._operator(char)
            elif char == "(":
                self._parenthesis()
            elif self._simple() == "esac" and case:
                return "esac"

    def _operator(self, char: str) -> None:
        self.script.compound = True
        if char == "|" and not self.text.startswith("||", self.at):
            self.script.piped = True
        self.at += 2 if self.text.startswith(("&&", "||"), self.at) else 1

    def _parenthesis(self) -> None:
        self.script.compound = True
        if self.text.startswith("((", self.at):
            self.at += 2
            self._arithmetic()
        else:
            self.at += 1
            self.commands(")")

    def _blank(self) -> None:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def _comment(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = self.end if end < 0 else end

    # ------------------------------------------------------------ one command
    def _simple(self) -> str:
        """One simple command, or the reserved word that stood in its place."""
        command = Command()
        start = last = self.at
        text = self.text
        while True:
            self._blank()
            if self.at >= self.end:
                break
            char = text[self.at]
            redirect = _REDIRECT.match(text, self.at) if char in "<>&0123456789{" else None
            if redirect is not None:
                self._redirect(command, redirect)
            elif char in "\n;&|)":
                break
            elif char == "#":
                self._comment()
                break
            elif char == "(":
                if not command.assignments and len(command.words) == 1 and _EMPTY_PARENS.match(text, self.at):
                    self.at = text.index(")", self.at) + 1
                    self.script.compound = True
                    command.words.clear()  # a function's name; its body comes next
                    break
                self.script.doubt("a '(' in it stands where none can")
                self.at += 1
            else:
                word = self._word(first=not command.words)
                if not command.words and not command.assignments and self._reserved(word):
                    return word.text
                assigned = _ASSIGNMENT.match(word.raw) if not command.words else None
                (command.assignments if assigned else command.words).append(word)
            last = self.at
        if command.words or command.assignments or command.redirects:
            command.span = (start, last)
            self.script.add(command)
        return ""

    def _reserved(self, word: Word) -> bool:
        """Whether this is a word of the shell's grammar; then what belongs to it is read."""
        raw = word.raw
        if raw in _OPENERS or raw == "esac":
            pass
        elif raw in ("for", "select"):
            self._for()
        elif raw == "case":
            self._case()
        elif raw == "[[":
            self._test()
        elif raw == "function":
            found = _FUNCTION.match(self.text, self.at)
            if found is None:
                self.script.doubt("a function in it has no name")
            else:
                self.at = found.end()
        elif raw == "coproc":
            found = _COPROC_NAME.match(self.text, self.at)
            self.at = found.end() if found else self.at
        elif raw == "time" and (_TIME_COMPOUND.match(self.text, self.at)):
            found = re.compile(r"[ \t]*(?:-p[ \t]+)?").match(self.text, self.at)
            self.at = found.end() if found else self.at
        else:
            return False
        self.script.compound = True
        return True

    def _for(self) -> None:
        self._blank()
        if self.text.startswith("((", self.at):
            self.at += 2
            self._arithmetic()
            return
        while True:
            self._blank()
            if self.at >= self.end or self.text[self.at] in "\n;&|)#":
                return
            if self.text[self.at] in "<>(":
                self.script.doubt("a loop in it has a list that cannot be read")
                if not self.text.startswith(("<(", ">("), self.at):
                    self.at += 1
                    continue
            if self._word().raw == "do":
                return

    def _case(self) -> None:
        self._blank_lines()
        self._word()
        self._blank_lines()
        if self._word().raw != "in":
            self.script.doubt("a case in it has no 'in'")
            return
        while True:
            self._blank_lines()
            if self.at >= self.end:
                self.script.doubt("a case in it has no 'esac'")
                return
            if self._patterns() or self.commands("", case=True) != ";;":
                return

    def _patterns(self) -> bool:
        """The patterns of one clause, up to their `)`; True when there was `esac` instead."""
        if self.text[self.at] == "(":
            self.at += 1
        while self.at < self.end:
            self._blank_lines()
            char = self.text[self.at : self.at + 1]
            if char == ")":
                self.at += 1
                return False
            if char and char in "|":
                self.at += 1
            elif char and char in _WORD_END:
                self.script.doubt("a case in it has a pattern that cannot be read")
                self.at += 1
            elif char and self._word().raw == "esac":
                return True
        self.script.doubt("a case in it has no 'esac'")
        return True

    def _blank_lines(self) -> None:
        while True:
            self._blank()
            char = self.text[self.at : self.at + 1]
            if char == "\n":
                self.at += 1
                self._heredocs()
            elif char == "#":
                self._comment()
            else:
                return

    def _test(self) -> None:
        """`[[ … ]]`: its words may be arithmetic, which a shell expands even inside quotes."""
        while True:
            self._blank_lines()
            if self.at >= self.end:
                self.script.doubt("a '[[' in it is not closed")
                return
            if self.text[self.at] in _WORD_END and not self.text.startswith(("<(", ">("), self.at):
                self.at += 1
                continue
            word = self._word()
            if word.raw == "]]":
                return
            if not word.plain and ("$(" in word.text or "`" in word.text):
                self.script.doubt("a '[[' in it may evaluate a quoted substitution")

    # ------------------------------------------------------------ redirections
    def _redirect(self, command: Command, found: re.Match[str]) -> None:
        self.at = found.end()
        operator = found[1] or found[0]
        self._blank()
        if self.at >= self.end or self.text[self.at] in "\n;|&":
            self.script.doubt("a redirection in it has no target")
            return
        target = self._word()
        if operator in ("<<", "<<-"):
            if target.expands:
                self.script.doubt("a heredoc in it has a delimiter that cannot be read")
            expands = not any(char in target.raw for char in "'\"\\")
            delimiter = target.raw if expands else target.text
            self.pending.append((command, delimiter, operator == "<<-", expands))
        command.redirects.append((found[0], operator, target))

    def _heredocs(self) -> None:
        """After a newline: the bodies that the commands before it wait for."""
        pending, self.pending = self.pending, []
        for command, delimiter, cut, expands in pending:
            lines: list[str] = []
            while self.at < self.end:
                end = self.text.find("\n", self.at)
                end = self.end if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, self.end)
                line = line.lstrip("\t") if cut else line
                if line == delimiter:
                    break
                lines.append(line)
            else:
                self.script.doubt("a heredoc in it has no end")
            body = "\n".join(lines)
            command.documents.append(body)
            self.script.compound = True
            if expands and ("$" in body or "`" in body):
                inner = _Reader(body, self.script, self.depth)
                inner._expansions("")

    # ------------------------------------------------------------ words
    def _word(self, *, first: bool = False) -> Word:
        text, start = self.text, self.at
        out: list[str] = []
        expands, plain = False, True
        while self.at < self.end:
            found = _PLAIN.match(text, self.at)
            if found is not None:
                out.append(found[0])
                self.at = found.end()
                continue
            char = text[self.at]
            if char in _WORD_END:
                if text.startswith(("<(", ">("), self.at):
                    self.at += 2
                    self._substitution(out)
                    expands = True
                elif char == "(" and first and _ASSIGNMENT.fullmatch(text, start, self.at):
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
            elif char == "\\":
                if text.startswith("\\\n", self.at):
                    self.at += 2
                    continue
                out.append(text[self.at + 1 : self.at + 2])
                self.at += 2
                plain = False
            elif char == "'":
                out.append(self._single())
                plain = False
            elif char == '"':
                self.at += 1
                expands |= self._double(out)
                plain = False
            elif char == "$":
                expands |= self._dollar(out, quoted=False)
                plain = False
            elif char == "`":
                self._backtick(out, quoted=False)
                expands, plain = True, False
            elif char in "*?[" or (char == "{" and self._braces(start)):
                out.append(UNKNOWN)
                self.at += 1
                plain = False
            else:
                out.append(char)
                self.at += 1
        self.at = min(self.at, self.end)
        return Word("".join(out), text[start : self.at], expands=expands, plain=plain)

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
                if following != "\n":
                    out.append(following if following in ("$", "`", '"', "\\") else char + following)
                self.at += 2
            elif char == "$":
                expands |= self._dollar(out, quoted=True)
            elif char == "`":
                self._backtick(out, quoted=True)
                expands = True
            else:
                end = self.at + 1
                while end < self.end and text[end] not in '"\\$`':
                    end += 1
                out.append(text[self.at : end])
                self.at = end
        self.script.doubt("a quote in it is not closed")
        return True

    def _array(self, out: list[str]) -> None:
        self.at += 1
        out.append(UNKNOWN)
        while True:
            self._blank_lines()
            if self.at >= self.end:
                self.script.doubt("an array in it is not closed")
                return
            if self.text[self.at] == ")":
                self.at += 1
                return
            if self.text[self.at] in _WORD_END and not self.text.startswith(("<(", ">("), self.at):
                self.script.doubt("an array in it cannot be read")
                self.at += 1
            else:
                self._word()

    # ------------------------------------------------------------ expansions
    def _dollar(self, out: list[str], *, quoted: bool) -> bool:
        """What a `$` begins; True when it expands."""
        text = self.text
        following = text[self.at + 1 : self.at + 2]
        if following == "(":
            arithmetic = text.startswith("((", self.at + 1)
            self.at += 3 if arithmetic else 2
            if arithmetic:
                out.append(UNKNOWN)
                self._arithmetic()
            else:
                self._substitution(out)
        elif following == "{":
            self.at += 2
            out.append(UNKNOWN)
            self._parameter(quoted=quoted)
        elif following == "[":
            self.at += 2
            out.append(UNKNOWN)
            self._expansions("]")
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
        pending, self.pending = self.pending, []
        self.commands(")")
        self.pending = pending + self.pending

    def _arithmetic(self) -> None:
        """Up to `))`. A single `)` first means that it was two groups after all."""
        opened = 0
        while self.at < self.end:
            char = self.text[self.at]
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
        while self.at < self.end:
            char = self.text[self.at]
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
                    self._single()
            elif char == '"' :
                self.at += 1
                self._double([])
            elif not self._expanded(char):
                self.at += 1
        self.script.doubt("an expansion in it is not closed")

    def _expansions(self, closing: str) -> None:
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
        read_script("".join(body), self.script, self.depth + 1)

    def _ansi(self) -> str:
        found = _ANSI_BODY.match(self.text, self.at + 2)
        if found is None:
            self.script.doubt("a quote in it is not closed")
            self.at = self.end
            return UNKNOWN
        self.at = found.end()
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
