"""Every command in a line of shell: a reader of POSIX sh and bash that reports a doubt rather than miss one.

`read_script(text)` gives a `ShellScript`: the simple commands found anywhere in it (chained, in groups, loops,
functions, substitutions, heredocs), each with its words as the shell would see them after quoting, and `unsure`, which
is set when a part could not be read for certain. It runs nothing and expands nothing: what only a shell can know (a
variable, a substitution's output, a file glob) stands in a word as `UNKNOWN`.

It is not a checker of syntax. Where a line is wrong or has two readings, it finds too many commands or is unsure; it
must never find too few. Commands that run others (`sudo`, `xargs`, `bash -c`) are the matter of `wrappers`.
"""

from __future__ import annotations

import re
from typing import Final

from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.tools.shell.words import ASSIGNMENT, DEPTH_MAX, WORD_END, ShellCommand, ShellScript, Word, WordReader

__all__ = ["ShellCommand", "ShellScript", "Word", "read_script"]

_REDIRECT: Final = re.compile(
    r"(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>|&>"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TWICE: Final = frozenset({">&", "<&", "&>", "&>>"})
_BETWEEN: Final = frozenset("\n#();&|")  # no command begins with these, except for `&>`
_EMPTY_PARENS: Final = re.compile(r"\([ \t]*\)")
_BLANKS: Final = frozenset(" \t\\")
_FUNCTION: Final = re.compile(r"[ \t]+[^\s;&|<>(){}'\"$`\\]+[ \t]*(?:\([ \t]*\))?")
_COPROC_NAME: Final = re.compile(r"[ \t]+[A-Za-z_][A-Za-z0-9_]*(?=[ \t]+(?:[{(]|(?:if|while|until|for|case|select)\b))")
_COMPARES: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v"})
_OPENERS: Final = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done"})


_RESERVED: Final = _OPENERS | {"esac", "for", "select", "case", "[[", "function", "coproc", "time"}
# Arguments without special characters; and a program with such arguments.
_ARGUMENTS: Final = re.compile(r"(?: [A-Za-z0-9_./:=@%+,^~\]\-]+)+(?=[ \t\n;&|)]|$)")
_SIMPLE: Final = re.compile(
    r"(?!(?:" + "|".join(sorted(word for word in _RESERVED if word.isalpha())) + r")(?:[ \t\n;&|)]|$))"
    r"[A-Za-z0-9_./:@%+,^~\]\-]+(?: [A-Za-z0-9_./:=@%+,^~\]\-]+)*(?=[ \t\n;&|)]|$)"
)
# After the keyword `time`: its own options, then what the program /usr/bin/time could not run.
_TIMED: Final = re.compile(
    r"((?:(?:[ \t]|\\\n)+(?:-p|--)(?=[ \t\n;&|<>()\\]|$))*(?:[ \t]|\\\n)*)"
    r"(?:[({]|[A-Za-z_][A-Za-z0-9_]*(?:\[|\+?=)"
    r"|(?:" + "|".join(re.escape(word) for word in sorted(_RESERVED)) + r")(?=[ \t\n;&|<>()\\]|$))"
)
_NESTED_COST: Final = 32  # characters that a script within another counts for, however short it is


def read_script(text: str, script: ShellScript | None = None, depth: int = 0) -> ShellScript:
    """Read a text; into a given ShellScript, what it holds counts as one more part of it."""
    script = script if script is not None else ShellScript()
    script.spent += len(text) + _NESTED_COST * (depth > 0)
    if "\0" in text:
        script.doubt("it holds a NUL character")
    elif script.spent > CAPABILITY_LENGTH_MAX:
        script.doubt(f"it is longer than {CAPABILITY_LENGTH_MAX} characters")
    elif depth > DEPTH_MAX:
        script.doubt(f"it is nested more than {DEPTH_MAX} deep")
    else:
        reader = _ScriptReader(text, script, depth)
        reader.join()
        if depth == 0:
            script.text = reader.text
        reader.commands("")
    return script


class _ScriptReader(WordReader):
    __slots__ = ()

    def read_nested(self, text: str) -> None:
        read_script(text, self.script, self.depth + 1)

    # ------------------------------------------------------------ lists of commands
    def commands(self, closing: str, *, case: bool = False) -> str:
        """Read commands up to `closing` (`)`, or in a case clause `;;` or `esac`); say what ended it."""
        if not self.deeper():
            return ""
        try:
            return self._commands(closing, case)
        finally:
            self.depth -= 1

    def _commands(self, closing: str, case: bool) -> str:
        while True:
            if self.script.unsure is not None:  # a doubt is final: the rest cannot change it
                self.position = self.end
                return ""
            self.blank()
            if self.position >= self.end:
                if closing or case:
                    self.script.doubt("something in it is not closed")
                return ""
            char = self.text[self.position]
            if char not in _BETWEEN:
                if self._simple() == "esac" and case:
                    return "esac"
            elif char == "\n":
                self.position += 1
                self.heredocs()
            elif char == "#":
                self.comment()
            elif char == ")":
                self.position += 1
                if closing == ")":
                    return ")"
                self.script.doubt("a ')' in it closes nothing")
            elif char == ";" and case and self.text[self.position + 1 : self.position + 2] in (";", "&"):
                self.position += 3 if self.text.startswith(";;&", self.position) else 2
                return ";;"
            elif char == "(":
                self._parenthesis()
            elif self.text.startswith("&>", self.position):
                self._simple()
            else:
                self.script.compound = True
                twice = char != ";" and self.text.startswith(char, self.position + 1)
                if char == "|" and not twice:
                    self.script.piped = True
                self.position += 2 if twice else 1

    def _parenthesis(self) -> None:
        self.script.compound = True
        if self.text.startswith("((", self.position):
            self.position += 2
            start = self.position
            self.arithmetic()
            self.read_nested(
                self.text[start : self.position].rstrip(")")
            )  # for a plain sh it is a group within a group
        else:
            self.position += 1
            self.commands(")")

    # ------------------------------------------------------------ one command
    def _simple(self) -> str:
        """One simple command, or the reserved word that stood in its place."""
        command = ShellCommand()
        command.fed = self.script.piped
        start = last = self.position
        text = self.text
        simple = _SIMPLE.match(text, start)
        if simple is not None:  # most commands have no special characters
            command.words = [Word(word, word) for word in simple[0].split(" ")]
            self.script.count_words(len(command.words))
            last = self.position = simple.end()
        while True:
            if text[self.position : self.position + 1] in _BLANKS:
                self.blank()
            if self.position >= self.end:
                break
            char = text[self.position]
            redirect = _REDIRECT.match(text, self.position) if char in "<>&0123456789{" else None
            if redirect is not None:
                self._redirect(command, redirect)
            elif char in "\n;&|)":
                break
            elif char == "#":
                self.comment()
                break
            elif char == "(":
                if not command.assignments and len(command.words) == 1 and _EMPTY_PARENS.match(text, self.position):
                    self.position = text.index(")", self.position) + 1
                    self.script.compound = self.script.defines = True
                    command.words.clear()  # a function's name; its body comes next
                    self.script.add(command)
                    break
                self.script.doubt("a '(' in it stands where none can")
                self.position = self.end
            else:
                word = self.word(first=not command.words)
                if not command.words and not command.assignments and self._read_reserved(word, command):
                    return word.text
                assigned = not command.words and "=" in word.raw and ASSIGNMENT.match(word.raw)
                (command.assignments if assigned else command.words).append(word)
                simple = _ARGUMENTS.match(text, self.position) if command.words else None
                if simple is not None:
                    arguments = simple[0][1:].split(" ")
                    self.script.count_words(len(arguments))
                    command.words += [Word(argument, argument) for argument in arguments]
                    self.position = simple.end()
            last = self.position
        if command.words or command.assignments or command.redirects:
            if command.words and command.words[0].raw == "time":
                self._look_behind_time(command.words)
            command.span = (start, last)
            self.script.add(command)
        return ""

    def _read_reserved(self, word: Word, command: ShellCommand) -> bool:
        """Return whether this is a word of the shell's grammar; then what belongs to it is read."""
        raw = word.raw
        if raw not in _RESERVED:
            return False
        if raw in _OPENERS or raw == "esac":
            pass
        elif raw in ("for", "select"):
            self._for()
        elif raw == "case":
            self._case()
        elif raw == "[[":
            self._test()
        elif raw == "function":
            self.script.defines = True
            match = _FUNCTION.match(self.text, self.position)
            if match is None:
                self.script.doubt("a function in it has no name")
            else:
                self.position = match.end()
        elif raw == "coproc":
            self.script.piped = True
            match = _COPROC_NAME.match(self.text, self.position)
            self.position = match.end() if match else self.position
        elif command.redirects or (match := _TIMED.match(self.text, self.position)) is None:
            return False  # `time ls`, which is the same for the keyword and for the program: see `wrappers`
        else:
            self.position = match.end(1)  # a whole pipeline follows, read like any other
            command.words.append(word)
            self.script.add(command)
        self.script.compound = True
        return True

    def _look_behind_time(self, words: list[Word]) -> None:
        """Doubt if `time` was read as a program because of a redirection, and a word of the grammar follows it."""
        index = 1
        while index < len(words) and words[index].raw in ("-p", "--"):
            index += 1
        if index < len(words) and (words[index].raw in _RESERVED or ASSIGNMENT.match(words[index].raw)):
            self.script.doubt("what 'time' in it runs cannot be told from a redirection")

    def _for(self) -> None:
        self.script.sets = True
        self.blank()
        if self.text.startswith("((", self.position):
            self.position += 2
            self.arithmetic()
            return
        name = _NAME.match(self.text, self.position)
        if name is not None:
            self.note_assignment(name[0])
        while True:
            self.blank()
            if self.position >= self.end or self.text[self.position] in "\n;&|)#":
                return
            if self.text[self.position] in "<>(":
                self.script.doubt("a loop in it has a list that cannot be read")
                if not self.text.startswith(("<(", ">("), self.position):
                    self.position += 1
                    continue
            if self.word().raw == "do":
                return

    def _case(self) -> None:
        self.blank_lines()
        self.word()
        self.blank_lines()
        if self.word().raw != "in":
            self.script.doubt("a case in it has no 'in'")
            return
        while True:
            self.blank_lines()
            if self.position >= self.end:
                self.script.doubt("a case in it has no 'esac'")
                return
            if self._patterns() or self.commands("", case=True) != ";;":
                return

    def _patterns(self) -> bool:
        """Return the patterns of one clause, up to their `)`; True when there was `esac` instead."""
        if self.text[self.position] == "(":
            self.position += 1
        while self.position < self.end:
            self.blank_lines()
            char = self.text[self.position : self.position + 1]
            if char == ")":
                self.position += 1
                return False
            if char and char in "|":
                self.position += 1
            elif char and char in WORD_END:
                self.script.doubt("a case in it has a pattern that cannot be read")
                self.position += 1
            elif char and self.word().raw == "esac":
                return True
        self.script.doubt("a case in it has no 'esac'")
        return True

    def _test(self) -> None:
        """`[[ … ]]`: its words may be arithmetic, which a shell expands even inside quotes."""
        while True:
            self.blank_lines()
            if self.position >= self.end:
                self.script.doubt("a '[[' in it is not closed")
                return
            if self.text[self.position] in WORD_END and not self.text.startswith(("<(", ">("), self.position):
                self.position += 1
                continue
            word = self.word()
            if word.raw == "]]":
                return
            self.script.evaluates |= word.text in _COMPARES
            if not word.plain and ("$(" in word.text or "`" in word.text):
                self.script.doubt("a '[[' in it may evaluate a quoted substitution")

    # ------------------------------------------------------------ redirections
    def _redirect(self, command: ShellCommand, match: re.Match[str]) -> None:
        self.position = match.end()
        operator = match[1] or match[0]
        self.blank()
        if self.position >= self.end or self.text[self.position] in "\n;|&":
            self.script.doubt("a redirection in it has no target")
            return
        target = self.word()
        if operator in ("<<", "<<-"):
            if target.expands:
                self.script.doubt("a heredoc in it has a delimiter that cannot be read")
            expands = not any(char in target.raw for char in "'\"\\")
            delimiter = target.raw if expands else target.text
            self.pending.append((command, delimiter, operator == "<<-", expands))
        elif operator in _TWICE and ("$" in target.text or "`" in target.text):
            self.script.doubt("bash expands the target of a redirection in it twice")
        command.redirects.append((match[0], operator, target))

    def heredocs(self, *, nested: bool = False) -> None:
        """After a newline: the bodies that the commands before it wait for."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        for command, delimiter, cut, expands in pending:
            lines: list[str] = []
            while self.position < self.end:
                end = self.text.find("\n", self.position)
                end = self.end if end < 0 else end
                line = self.text[self.position : end]
                self.position = min(end + 1, self.end)
                line = line.lstrip("\t") if cut else line
                if expands and line[-1:] == "\\":
                    line = self._join_continued(line, cut=cut)
                if line == delimiter:
                    break
                lines.append(line)
            else:
                self.script.doubt("a heredoc in it has no end")
            body = "\n".join(lines)
            command.documents.append(body)
            self.script.compound = True
            if expands and ("$" in body or "`" in body):
                inner = _ScriptReader(body, self.script, self.depth)
                inner.expansions("")
            if "$" in body or "`" in body:
                self.script.quotes_code = True
        if self.text.find("\\\n", self.position) >= 0:
            if nested or self.depth > 1:  # the quoting around the heredoc is not known here
                self.script.doubt("it joins lines after a heredoc")
            self.join()

    def _join_continued(self, line: str, *, cut: bool) -> str:
        """Return a line of a heredoc joined with the lines that continue it; the joined line may be the delimiter."""
        parts: list[str] = []
        while (len(line) - len(line.rstrip("\\"))) % 2 and self.position < self.end:
            parts.append(line[:-1])
            end = self.text.find("\n", self.position)
            end = self.end if end < 0 else end
            line = self.text[self.position : end]
            self.position = min(end + 1, self.end)
            if cut and line[:1] == "\t":
                self.script.doubt("a heredoc in it joins lines that begin with tabs")
        return "".join((*parts, line))
