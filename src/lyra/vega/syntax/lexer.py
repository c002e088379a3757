"""From characters to tokens: one regular expression for what is frequent, small functions for the rest.

`lex(source)` gives the tokens, the comments and what was wrong; it never raises. After a mistake it continues behind
it, so that one run tells several. A string with `${…}` in it becomes one `template` token, whose value holds its texts
and, for each `${…}`, tokens of their own; comments in there stay part of the string.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from lyra.core.budgets.money import Money
from lyra.core.limits import MONEY_MICRO_USD_MAX, VEGA_PROBLEMS_MAX
from lyra.vega.syntax.source import Diagnostic, Source
from lyra.vega.values.values import INT_MAX, UNITS, Duration

# ---------------- The words and signs of Vega, and what a lexer hands to a parser
# A token is one index into four lists side by side: kind, value, start and end. The kind of a keyword or sign is its
# own text; the rest are in `KINDS`. Only words that start a construct, or continue with one, are keywords; `model`,
# `timeout`, `in` and the like are names that a construct asks for at their place.

# What stands in a message for a kind that is not its own text.
KINDS: Final[dict[str, str]] = {
    "name": "a name",
    "int": "a number",
    "float": "a number",
    "money": "an amount of money",
    "duration": "a duration",
    "string": "a string",
    "template": "a string",
    "end": "the end of the file",
}

KEYWORDS: Final = (
    *("agent", "await", "break", "catch", "const", "continue", "defer", "else", "false", "finally", "fn", "for"),
    *("if", "import", "let", "match", "null", "parallel", "receive", "return", "session", "spawn", "supervisor"),
    *("throw", "tool", "true", "try", "while"),
)

SIGNS: Final = (
    *("<-", "<~", "->", "=>", "::", "==", "!=", "<=", ">=", "&&", "||"),
    *("+", "-", "*", "/", "%", "<", ">", "=", "!", ".", ",", ";", ":", "(", ")", "[", "]", "{", "}", "|"),
)

# Text → kind for every keyword and sign: one object for each, so that comparing two kinds compares two addresses.
FIXED: Final[dict[str, str]] = {text: text for text in (*KEYWORDS, *SIGNS)}


class Tokens:
    """Four lists of one length; the last token has the kind "end"."""

    __slots__ = ("ends", "kinds", "starts", "values")

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.values: list[Any] = []  # the text of a name, a literal's value, a template's parts, else None
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, kind: str, value: Any, start: int, end: int) -> None:
        self.kinds.append(kind)
        self.values.append(value)
        self.starts.append(start)
        self.ends.append(end)

    def __len__(self) -> int:
        return len(self.kinds)


def describe_token(kind: str, value: Any) -> str:
    """Return a token as a message names it: `;`, the keyword `let`, the name `x`, a string."""
    if kind == "name" or (kind == "end" and value):
        return f"`{value}`"  # the end of a `${…}` is its brace
    if kind in KINDS:
        return KINDS[kind]
    return f"`{kind}`"


_TEMPLATES_MAX: Final = 40  # strings inside `${…}` inside strings …

# White space, then one of: 1 a word, 2 a sign, 3 a plain string, 4 a short whole number, 5 a line comment,
# 6 anything else (looked at by hand), 7 the end.
_TOKEN: Final = re.compile(
    r"[ \t\r\n]*(?:([^\W\d]\w*)|("
    + "|".join(re.escape(sign) for sign in SIGNS if sign != "/")
    + r'|/(?![/*]))|"([^"\\$\n]*)"(?!")|([0-9]{1,18})(?![\w.])|(//[^\n]*)|(.)|(\Z))',
    re.DOTALL,
)
_WORD, _SIGN, _STRING, _INT, _COMMENT, _OTHER, _END = range(1, 8)

_NUMBER: Final = re.compile(
    r"(0[xX][0-9a-fA-F_]+|0[bB][01_]+)|([0-9][0-9_]*(?:\.[0-9][0-9_]*)?)([eE][+-]?[0-9]+)?", re.ASCII
)
_SUFFIX: Final = re.compile(r"\w*")
_MONEY: Final = re.compile(r"\$([0-9][0-9_]*)(?:\.([0-9]+))?", re.ASCII)
_ONE_LINE: Final = re.compile(r'[^"\\$\n]+')
_LINES: Final = re.compile(r'[^"\\$]+')
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'", "$": "$",
}  # fmt: skip
_BAD: Final = {
    "'": "strings stand in double quotes",
    "`": "strings stand in double quotes",
    "#": "comments begin with `//`",
    "&": "`and` is written `&&`",
    "?": "there is no conditional operator; use `if` or `match`",
    "$": "an amount of money is written `$0.50`",
    "\u201c": 'use the plain quote `"`',
    "\u201d": 'use the plain quote `"`',
    "\u00a0": "this is a no-break space; use a plain one",
}


class Lexed(NamedTuple):
    """`cut_off`: a string or comment ran to the end of the file, and what follows from that is not worth telling."""

    tokens: Tokens
    comments: list[tuple[int, str]]
    problems: list[Diagnostic]
    cut_off: bool


def lex(source: Source) -> Lexed:
    lexer = _Lexer(source)
    tokens = Tokens()
    lexer.run(tokens, 1 if source.text.startswith("\ufeff") else 0, nested=False)
    return Lexed(tokens, lexer.comments, lexer.problems, lexer.cut_off)


class _Lexer:
    __slots__ = ("comments", "cut_off", "depth", "is_too_deep", "problems", "source", "text")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.comments: list[tuple[int, str]] = []
        self.problems: list[Diagnostic] = []
        self.cut_off = False
        self.is_too_deep = False
        self.depth = 0

    def run(self, tokens: Tokens, offset: int, *, nested: bool) -> int:
        """Lex from `at` to the end, or, nested in a string, to the `}` that closes it; gives where it stopped."""
        kinds, values, starts, ends = tokens.kinds, tokens.values, tokens.starts, tokens.ends
        add_kind, add_value, add_start, add_end = kinds.append, values.append, starts.append, ends.append
        fixed, open_braces = FIXED, 0
        while True:
            for token in _TOKEN.finditer(self.text, offset):
                which = token.lastindex
                if which == _WORD:
                    word = token[1]
                    add_kind(fixed.get(word, "name"))
                    add_value(word)
                elif which == _SIGN:
                    sign = token[2]
                    if nested and (sign == "{" or sign == "}"):
                        open_braces += 1 if sign == "{" else -1
                        if open_braces < 0:
                            tokens.add("end", "}", token.start(2), token.start(2))
                            return token.end()
                    add_kind(fixed[sign])
                    add_value(None)
                elif which == _STRING:
                    tokens.add("string", token[3], token.start(3) - 1, token.end())
                    continue
                elif which == _INT:
                    add_kind("int")
                    add_value(int(token[4]))
                elif which == _COMMENT:
                    if not nested:
                        self.comments.append((token.start(5), token[5].rstrip("\r")))
                    continue
                elif which == _OTHER:
                    offset = self._other(tokens, token.start(6), nested=nested)
                    break
                else:
                    tokens.add("end", None, token.end(), token.end())
                    return token.end()
                add_start(token.start(which))
                add_end(token.end())
            if self.cut_off:
                tokens.add("end", None, len(self.text), len(self.text))
                return len(self.text)

    def _error(self, offset: int, end: int, message: str, hint: str | None = None) -> None:
        if len(self.problems) < VEGA_PROBLEMS_MAX:
            self.problems.append(self.source.problem(offset, end, message, hint=hint))

    def _other(self, tokens: Tokens, offset: int, *, nested: bool) -> int:
        """Read a token that the one regular expression does not cover; gives the offset behind it."""
        char = self.text[offset]
        if char == '"':
            return self._string(tokens, offset)
        if char.isascii() and char.isdigit():
            return self._number(tokens, offset)
        if char == "$":
            return self._money(tokens, offset)
        if self.text.startswith("/*", offset):
            end = self.text.find("*/", offset + 2)
            if end < 0:
                self._error(offset, offset + 2, "this comment is never closed", "end it with `*/`")
                self.cut_off = True
                return len(self.text)
            if not nested:
                self.comments.append((offset, self.text[offset : end + 2]))
            return end + 2
        if char == "#" and offset == 0 and self.text.startswith("#!"):  # the line that makes a script of the file
            end = self.text.find("\n")
            end = len(self.text) if end < 0 else end
            self.comments.append((0, self.text[:end].rstrip("\r")))
            return end
        shown = char if char.isprintable() else f"U+{ord(char):04X}"
        self._error(offset, offset + 1, f"unexpected character `{shown}`", _BAD.get(char))
        return offset + 1

    def _number(self, tokens: Tokens, offset: int) -> int:
        number = _NUMBER.match(self.text, offset)
        assert number is not None
        unit = _SUFFIX.match(self.text, number.end())
        assert unit is not None
        end, digits = unit.end(), number[0].replace("_", "")
        if number[0].endswith("_") or "_." in number[0]:
            self._error(offset, end, f"`{self.text[offset:end][:40]}` is not a number", "`_` stands between digits")
        elif unit[0]:
            self._duration(tokens, offset, end, (number[2] or "").replace("_", "") + (number[3] or ""), unit[0])
            return end
        elif number[3] or "." in number[0]:
            value = float(digits)
            if value in (float("inf"), float("-inf")):
                self._error(offset, end, "this number is too large for a float")
                value = 0.0
            tokens.add("float", value, offset, end)
            return end
        else:
            self._int(tokens, offset, end, digits)
            return end
        tokens.add("int", 0, offset, end)
        return end

    def _int(self, tokens: Tokens, offset: int, end: int, digits: str) -> None:
        base = {"0x": 16, "0b": 2}.get(digits[:2].lower(), 10)
        # Longer texts cannot fit, and reading them costs time in proportion to the square of their length.
        value = int(digits[2:] or "0", base) if base != 10 else int(digits) if len(digits.lstrip("0")) < 40 else 1 << 64
        # One more than the largest is let through: behind a minus it is the smallest. The parser knows.
        if value > INT_MAX + 1:
            self._error(offset, end, "this number is too large for a 64-bit int", f"the largest is {INT_MAX}")
            value = 0
        tokens.add("int", value, offset, end)

    def _duration(self, tokens: Tokens, offset: int, end: int, digits: str, unit: str) -> None:
        value = Duration(0)
        size = UNITS.get(unit)
        if size is None or not digits or "e" in digits.lower():
            units = ", ".join(reversed(UNITS))
            self._error(
                offset, end, f"`{self.text[offset:end][:40]}` is not a number", f"the units of durations are {units}"
            )
        elif len(digits) > 40:
            self._error(offset, end, "this duration is too long", "the longest is about 292 years")
        else:
            whole, _, fraction = digits.partition(".")
            nanoseconds, rest = divmod(int(whole + fraction) * size, 10 ** len(fraction))
            if rest:
                self._error(offset, end, "this duration is finer than a nanosecond")
            elif nanoseconds > INT_MAX:
                self._error(offset, end, "this duration is too long", "the longest is about 292 years")
            else:
                value = Duration(nanoseconds)
        tokens.add("duration", value, offset, end)

    def _money(self, tokens: Tokens, offset: int) -> int:
        amount = _MONEY.match(self.text, offset)
        if amount is None:
            self._error(offset, offset + 1, "unexpected character `$`", _BAD["$"])
            return offset + 1
        rest = _SUFFIX.match(self.text, amount.end())
        assert rest is not None
        end, fraction, dollars = rest.end(), amount[2] or "", amount[1].replace("_", "")
        micro = 0
        if rest[0] or amount[1].endswith("_"):
            self._error(offset, end, f"`{self.text[offset:end][:40]}` is not an amount of money", _BAD["$"])
        elif len(fraction) > 6:
            self._error(offset, end, "an amount of money has at most six decimals", "the smallest is $0.000001")
        elif len(dollars) > 19 or (micro := int(dollars) * 10**6 + int(fraction.ljust(6, "0"))) > MONEY_MICRO_USD_MAX:
            self._error(
                offset, end, "this amount of money is too large", f"the largest is {Money(MONEY_MICRO_USD_MAX)}"
            )
            micro = 0
        tokens.add("money", Money(micro), offset, end)
        return end

    def _string(self, tokens: Tokens, start: int) -> int:
        """Return a string with escapes, with `${…}`, or of several lines."""
        text, quote = self.text, '"""' if self.text.startswith('"""', start) else '"'
        plain = _LINES if len(quote) == 3 else _ONE_LINE
        parts: list[str | Tokens] = []
        piece: list[str] = []
        offset = start + len(quote)
        while not text.startswith(quote, offset):
            if (plain_part := plain.match(text, offset)) is not None:
                piece.append(plain_part[0])
                offset = plain_part.end()
            elif offset >= len(text) or text[offset] == "\n":
                return self._report_unterminated(tokens, start, offset, quote)
            elif text[offset] == "\\":
                offset = self._escape(piece, offset)
            elif text.startswith("${", offset):
                parts.append("".join(piece))
                piece = []
                inside = Tokens()
                offset = self._read_nested(inside, offset)
                parts.append(inside)
                if self.cut_off:
                    return offset
            else:  # a dollar or a quote that is only itself
                piece.append(text[offset])
                offset += 1
        end = offset + len(quote)
        if parts:
            tokens.add("template", [*parts, "".join(piece)], start, end)
        else:
            tokens.add("string", "".join(piece), start, end)
        return end

    def _report_unterminated(self, tokens: Tokens, start: int, offset: int, quote: str) -> int:
        if len(quote) == 3:
            self._error(start, start + 3, "this string is never closed", 'end it with `"""`')
            self.cut_off = True
        else:
            self._error(
                start, offset, "this string is never closed on its line", 'a text of several lines stands in `"""`'
            )
        tokens.add("string", "", start, offset)
        return offset

    def _read_nested(self, inside: Tokens, offset: int) -> int:
        """Return the tokens of one `${…}`; gives the place behind its `}`."""
        if self.depth >= _TEMPLATES_MAX:
            self._error(
                offset, offset + 2, "strings are nested too deeply here", f"at most {_TEMPLATES_MAX} inside one another"
            )
            self.cut_off = self.is_too_deep = True
            return len(self.text)
        self.depth += 1
        told = len(self.problems)
        end = self.run(inside, offset + 2, nested=True)
        self.depth -= 1
        if self.text[end - 1 : end] != "}" or inside.starts[-1] == end:
            if not self.is_too_deep:
                # Whatever else was found on the way follows from the brace that is missing.
                del self.problems[told:]
                self._error(offset, offset + 2, "this `${` is never closed", "end it with `}`")
            self.cut_off = True
        return end

    def _escape(self, piece: list[str], offset: int) -> int:
        escape = _ESCAPE.match(self.text, offset)
        if escape is None:  # a backslash at the very end
            return offset + 1
        code = escape[1] or escape[2] or escape[3]
        if code is None:
            char = _ESCAPES.get(escape[4])
            if char is None:
                what = f"`\\{escape[4]}`" if escape[4].isprintable() else "a backslash here"
                known = " ".join(f"\\{name}" for name in _ESCAPES)
                self._error(offset, offset + 2, f"{what} is not an escape", f"known: {known} \\xNN \\uNNNN \\u{{N…}}")
                return offset + (1 if escape[4] == "\n" else 2)
            piece.append(char)
        elif (number := int(code, 16)) > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self._error(
                offset, escape.end(), f"there is no character {number:X}", "one beyond FFFF is written `\\u{1F600}`"
            )
        else:
            piece.append(chr(number))
        return escape.end()
