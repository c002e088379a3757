"""Where a parser stands in its tokens, what it expects there, and how it continues after a mistake.

A mistake is noted and thrown as `Stop` to the statement it stands in; `recover` then skips to the next place where a
statement can begin, so that one run tells several mistakes. The open braces are kept in a list, so that recovery knows
whose `}` it meets and a brace that is never closed can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from lyra.core.checking.check import did_you_mean
from lyra.core.limits import VEGA_NESTING_MAX, VEGA_PROBLEMS_MAX
from lyra.vega.syntax.ast import Block, Expression, Statement
from lyra.vega.syntax.lexer import KEYWORDS, Tokens, describe_token
from lyra.vega.syntax.source import Diagnostic, Source

# Words of other languages, and what Vega writes.
FOREIGN: Final = {
    "and": "&&",
    "class": "agent",
    "def": "fn",
    "elif": "else if",
    "elseif": "else if",
    "except": "catch",
    "foreach": "for",
    "func": "fn",
    "function": "fn",
    "nil": "null",
    "None": "null",
    "not": "!",
    "or": "||",
    "raise": "throw",
    "switch": "match",
    "undefined": "null",
    "var": "let",
}

# A token that can only be the first of a statement: recovery stops there when it begins a line.
_STARTS: Final = frozenset(
    {"agent", "break", "const", "continue", "defer", "fn", "for", "if", "import", "let", "parallel", "return"}
    | {"session", "supervisor", "throw", "tool", "try", "while"}
)
# Hints for habits of other languages, by the token that stands behind a value.
_HABITS: Final = {
    "in": "whether a list or text has something in it: `whole.has(part)`",
    "=>": "a function without a name is a lambda: `|x| …`",
    ",": "one `let` for each name",
    ":": "a `{` that begins a statement opens a block",
    "fn": "every function may wait; `await` is for futures and streams",
}
_VALUES: Final = frozenset({"name", "string", "template", "int", "float", "money", "duration"})
_KEYS: Final = _VALUES | {"true", "false", "null"}  # tokens that may be the key of a map
# Words that may follow a whole expression: of a send, and of `spawn`.
_BEHIND: Final = ("timeout", "budget", "supervised")


class Grammar(NamedTuple):
    """The rules of the language, which its families of constructs reach one another through: an expression may hold a
    block (a lambda), a block statements, a statement declarations. `parser` puts it together."""

    expressions: Mapping[str, Callable[[Cursor], Expression]]  # by first token
    statements: Mapping[str, Callable[[Cursor], Statement]]  # by first token; `test` by its word
    block: Callable[[Cursor, str], Block]


class Stop(Exception):
    """A mistake was noted; the statement it stands in is given up."""


class Cursor:
    """The tokens, the place in them, and the mistakes so far."""

    __slots__ = (
        *("braces", "depth", "ends", "grammar", "i", "is_lost", "is_unfinished"),
        *("kinds", "problems", "source", "starts", "values"),
    )

    def __init__(self, source: Source, tokens: Tokens, grammar: Grammar) -> None:
        self.grammar = grammar
        self.source = source
        self.problems: list[Diagnostic] = []
        self.depth = 0
        self.is_unfinished = False  # a mistake was found at the end: more text might have helped
        self.is_lost = False  # a brace is known to miss its partner: what else is open at the end follows from that
        self.braces: list[int] = []  # offsets of the `{` that are open
        self.enter(tokens)

    def enter(self, tokens: Tokens) -> None:
        self.kinds = [*tokens.kinds, "end", "end"]  # so that a look two tokens ahead always finds something
        self.values = tokens.values
        self.starts, self.ends = tokens.starts, tokens.ends
        self.i = 0

    # ---------------------------------------------------------------- mistakes

    def note(self, offset: int, end: int, message: str, hint: str | None = None) -> None:
        """Remember a mistake and continue; the same place is told once, and there is an end to it."""
        if self.kinds[self.i] == "end":
            self.is_unfinished = True
        if len(self.problems) < VEGA_PROBLEMS_MAX and not (self.problems and self.problems[-1].at == offset):
            self.problems.append(self.source.problem(offset, end, message, hint=hint))

    def fail(self, offset: int, end: int, message: str, hint: str | None = None) -> NoReturn:
        self.note(offset, end, message, hint)
        raise Stop

    def fail_here(self, message: str, hint: str | None = None) -> NoReturn:
        """Report a mistake at the present token; at the end of the file it is told where the text ends."""
        i = self.i
        if self.kinds[i] == "end" and self.braces:
            self.fail_unclosed()
        if self.kinds[i] == "end" and i:
            self.fail(self.ends[i - 1], self.ends[i - 1], message, hint)
        self.fail(self.starts[i], self.ends[i], message, hint)

    def fail_unclosed(self) -> NoReturn:
        """At the end of the file: the innermost brace is what misses its partner; the outer ones follow from it."""
        brace = self.braces[-1]
        if self.is_lost:
            raise Stop
        self.is_lost = True
        self.fail(brace, brace + 1, "this `{` is never closed", self._find_misplaced_brace())

    def _find_misplaced_brace(self) -> str | None:
        """Return a brace whose partner stands further left than its line begins: there the missing one may belong."""
        place, opened = self.source.place, []
        for kind, offset in zip(self.kinds, self.starts, strict=False):
            if kind == "{":
                opened.append(offset)
            elif kind == "}" and opened:
                (line, _), (last, column) = place(opened.pop()), place(offset)
                text = self.source.line(line)
                indented = len(text) - len(text.lstrip())
                if last > line and not self.source.line(last)[: column - 1].strip() and column - 1 < indented:
                    return f"the `}}` of line {last} stands further left than line {line}, whose `{{` it closes"
        return None

    def fail_expected(self, what: str, *, where: str = "", hint: str | None = None) -> NoReturn:
        """`expected X where, found Y`."""
        i, kind = self.i, self.kinds[self.i]
        message = f"expected {what}{' ' + where if where else ''}, found {describe_token(kind, self.values[i])}"
        if i and (kind in _STARTS or kind == "}") and self.begins_line():
            self.fail(self.ends[i - 1], self.ends[i - 1], message, hint)  # it is missing on the line before
        self.fail_here(message, hint or self.word_hint())

    def word_hint(self) -> str | None:
        """Return a hint for the word at this place: a word of another language, or a misspelt keyword."""
        if self.kinds[self.i] != "name":
            return None
        word = self.values[self.i]
        if word in _HABITS:
            return _HABITS[word]
        near = FOREIGN.get(word) or did_you_mean(word, KEYWORDS)
        return f"did you mean `{near}`?" if near else None

    def begins_line(self) -> bool:
        """Return whether the present token is the first of its line."""
        return "\n" in self.source.text[self.ends[self.i - 1] if self.i else 0 : self.starts[self.i]]

    def too_deep(self) -> NoReturn:
        self.is_lost = True
        i = self.i
        hint = f"at most {VEGA_NESTING_MAX} levels; take a part out into a function or a `let`"
        self.fail(self.starts[i], self.ends[i], "this is nested too deeply", hint)

    # ---------------------------------------------------------------- expectations

    def take(self, kind: str) -> bool:
        """Step over this kind if it is here."""
        if self.kinds[self.i] == kind:
            self.i += 1
            return True
        return False

    def expect(self, kind: str, where: str = "", hint: str | None = None) -> None:
        if self.kinds[self.i] == kind:
            self.i += 1
        else:
            self.fail_expected(f"`{kind}`", where=where, hint=hint)

    def is_word(self, word: str) -> bool:
        """Return whether this soft keyword is here."""
        return self.kinds[self.i] == "name" and self.values[self.i] == word

    def is_map(self) -> bool:
        """Return whether the `{` here, where a block could stand too, begins a map: a key and a `:` follow."""
        return self.kinds[self.i] == "{" and self.kinds[self.i + 1] in _KEYS and self.kinds[self.i + 2] == ":"

    def name(self, what: str) -> str:
        """Return a name; `what` says of what."""
        if self.kinds[self.i] == "name":
            self.i += 1
            return str(self.values[self.i - 1])
        word = self.values[self.i]
        if self.kinds[self.i] in KEYWORDS:
            self.fail_here(f"`{word}` is a keyword and cannot be {what}", f"another name: `{word}_`")
        return self.fail_expected(what)

    def any_word(self, what: str) -> str:
        """Return a name that may also be a keyword: behind `.` and `::` nothing else can be meant."""
        if self.kinds[self.i] == "name" or self.kinds[self.i] in KEYWORDS:
            self.i += 1
            return str(self.values[self.i - 1])
        return self.fail_expected(what)

    def open_brace(self, where: str) -> int:
        """Step over a `{` and remember it; gives its offset."""
        offset = self.starts[self.i]
        self.expect("{", where)
        self.braces.append(offset)
        return offset

    def close_brace(self, where: str) -> None:
        if self.kinds[self.i] != "}":
            self.fail_expected("`}`", where=where)
        self.braces.pop()
        self.i += 1

    def close(self, kind: str, opened: int, where: str) -> None:
        """Read the `)` or `]` of what was opened at that offset."""
        if self.kinds[self.i] == kind:
            self.i += 1
            return
        sign = "(" if kind == ")" else "["
        if self.kinds[self.i] in ("end", ";", "}") or self.kinds[self.i] in _STARTS:
            self.fail(opened, opened + 1, f"this `{sign}` is never closed", f"`{kind}` is missing {where}")
        self.fail_expected(f"`,` or `{kind}`", where=where)

    def semicolon(self, what: str) -> None:
        """Read the `;` of a statement. One that is missing at a line's end is told there, and nothing is skipped."""
        i = self.i
        if self.kinds[i] == ";":
            self.i = i + 1
            return
        end = self.ends[i - 1]
        if self.kinds[i] in ("end", "}") or self.begins_line():
            self.note(end, end, f"missing `;` after {what}")
            return
        hint = _HABITS.get(self.kinds[i])
        if (self.kinds[i] == "," and "let" not in what) or (self.kinds[i] == "fn" and self.values[i - 1] != "async"):
            hint = None
        if self.kinds[i] == "name" and (near := did_you_mean(self.values[i], _BEHIND)):
            hint = f"did you mean `{near}`?"
        elif self.kinds[i - 1] == "name" and self.kinds[i] in _VALUES and self.word_hint() is None:
            word = self.values[i - 1]
            hint = f"errors are thrown by name: `throw {self.values[i]}(…)`" if word == "new" else f"write `{word}(…)`"
        self.fail_expected("`;`", where=f"after {what}", hint=hint)

    # ---------------------------------------------------------------- going on

    def recover(self, start: int, braces: int) -> None:
        """Skip to where the next statement of a block can begin. The wrong one began at the token `start`, with so
        many braces open."""
        if len(self.problems) >= VEGA_PROBLEMS_MAX:
            self.i = len(self.values) - 1
        inner = max(0, len(self.braces) - braces)  # braces of the statement itself, still open
        del self.braces[braces:]
        kinds = self.kinds
        while (kind := kinds[self.i]) != "end":
            if kind == "{":
                inner += 1
            elif kind == "}":
                if inner == 0:
                    return
                inner -= 1
                if inner == 0 and not self._goes_on():
                    self.i += 1
                    return
            elif inner == 0 and kind == ";":
                self.i += 1
                return
            elif inner == 0 and kind in _STARTS and self.i > start and self.begins_line():
                return
            self.i += 1

    def _goes_on(self) -> bool:
        """Return whether what follows a `}` still belongs to the statement that is being skipped."""
        following: Any = self.kinds[self.i + 1]
        return following in ("else", "catch", "finally", ")", "]", ",", ";", ".")
