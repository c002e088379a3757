"""From the text of an expression or a template to its tree, by operator precedence.

    =>  (right)   <   OR   <   AND   <   NOT   <   FORALL EXISTS   <   == != <= >= < > IN CONTAINS IS NULL (one)
    <   + -   <   * / %   <   - (sign)   <   .field  [index]

Keywords are upper case, except true, false and null. A text stands in single or double quotes; a backslash before a
quote, a backslash, n or t stands for that character, any other backslash for itself, so that patterns need no doubling.
A template is a text with `{expression}` in it; `{{` and `}}` stand for braces. One that is exactly one placeholder has
that value with its type; any other is a text. Lengths and depths are bounded, so that no file can exhaust the stack. A
mistake is a ParseError with the offset in `fields`; the caller knows the line and column. Nothing is evaluated here.
"""

from __future__ import annotations

import re
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from lyra.errors import ParseError
from lyra.vesper.expressions.functions import FUNCTIONS, OTHER_FUNCTIONS
from lyra.vesper.expressions.terms import (
    BinaryTerm,
    CallTerm,
    IndexTerm,
    ListTerm,
    LiteralTerm,
    MapTerm,
    MemberTerm,
    NameTerm,
    NullTestTerm,
    PlaceholderTerm,
    QuantifierTerm,
    StarTerm,
    Term,
    UnaryTerm,
    format_term,
)
from lyra.vesper.values.limits import (
    EXPRESSION_CHARS_MAX,
    EXPRESSION_DEPTH_MAX,
    EXPRESSION_NESTING_MAX,
    NUMBER_DIGITS_MAX,
    TEMPLATE_CHARS_MAX,
    TEMPLATE_PLACEHOLDERS_MAX,
)

_IMPLIES, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN = range(1, 9)
_BINARY: Final = {
    "=>": _IMPLIES,
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">", "IN", "CONTAINS", "NOT", "IS"), _COMPARE),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "%"), _PRODUCT),
}


def parse_expression(text: str, *, sql: bool = False) -> Term:
    """Return the tree of an expression. With `sql`, a single `=` is read as `==`."""
    if len(text) > EXPRESSION_CHARS_MAX:
        raise syntax_error(f"the expression has more than {EXPRESSION_CHARS_MAX} characters", 0, 0)
    return _Parser(tokens_of(text), sql=sql).parse_all()


class _Parser:
    def __init__(self, tokens: list[ExpressionToken], *, sql: bool = False) -> None:
        self.tokens = tokens
        self.index = 0
        self.nesting = 0
        self.sql = sql
        self.depths: dict[int, int] = {}  # by id of a term of this parse; self.kept keeps them alive
        self.kept: list[Term] = []

    def parse_all(self) -> Term:
        if self.tokens[0].kind == "end":
            raise syntax_error("an expression is expected", self.tokens[0].start, self.tokens[0].end)
        term = self.expression(_IMPLIES)
        token = self.peek()
        if token.kind != "end":
            raise self.explain_unexpected(token)
        return term

    # ------------------------------------------------------------ tokens
    def peek(self) -> ExpressionToken:
        return self.tokens[self.index]

    def take(self) -> ExpressionToken:
        token = self.tokens[self.index]
        self.index += token.kind != "end"
        return token

    def takes(self, kind: str, value: str) -> bool:
        token = self.peek()
        if token.kind == kind and token.value == value:
            self.index += 1
            return True
        return False

    def expect(self, value: str) -> ExpressionToken:
        token = self.take()
        if token.kind != "symbol" or token.value != value:
            raise self.explain_unexpected(token, f"`{value}` is expected instead of {token}")
        return token

    def expect_name(self, what: str) -> ExpressionToken:
        token = self.take()
        if token.kind != "name" and not (what == "field" and token.kind in ("keyword", "word")):
            raise syntax_error(f"the name of a {what} is expected instead of {token}", token.start, token.end)
        return token

    def explain_unexpected(self, token: ExpressionToken, message: str = "") -> ParseError:
        index = self.tokens.index(token)
        previous = self.tokens[index - 1] if index else None
        hint = ""
        if token.kind == "name" and token.value.upper() in KEYWORDS:
            hint = f"keywords are written in upper case: {token.value.upper()}"
        elif token.kind == "symbol" or (token.kind == "name" and token.value in ("if", "else")):
            both = str(previous.value) + str(token.value) if previous and previous.end == token.start else ""
            hint = _OTHER_SIGNS.get(both) or _OTHER_SIGNS.get(str(token.value), "")
        elif previous and previous.kind == "name" and previous.value.upper() in KEYWORDS:
            hint = f"keywords are written in upper case: {previous.value.upper()}"
        error = syntax_error(message or f"unexpected {token}", token.start, token.end, hint=hint)
        error.fields["after_name"] = token.kind == "name" and previous is not None and previous.kind == "name"
        return error

    # ------------------------------------------------------------ expressions
    def expression(self, level: int) -> Term:
        left = self.prefix(level)
        while (own := self.operator_level()) >= level:
            if own == _IMPLIES:
                sign = self.take()
                left = self.binary("=>", left, self.expression(_IMPLIES), sign)
            elif own == _COMPARE:
                left = self.comparison(left)
                if self.operator_level() == _COMPARE:
                    raise self.explain_chain(left)
            else:
                sign = self.take()
                left = self.binary(str(sign.value), left, self.expression(own + 1), sign)
        return left

    def explain_chain(self, left: Term) -> ParseError:
        """Return the error of a comparison after another: what is meant is both of them."""
        token = self.peek()
        middle = format_term(left.right) if isinstance(left, BinaryTerm) else "…"
        hint = f"comparisons do not chain: write {format_term(left)} AND {middle} {token.value} …"
        return syntax_error(f"unexpected {token}", token.start, token.end, hint=hint)

    def operator_level(self) -> int:
        token = self.peek()
        if token.kind not in ("symbol", "keyword"):
            return 0
        if token.value == "=" and self.sql:
            return _COMPARE
        if token.value == "NOT" and self.tokens[self.index + 1].value != "IN":
            return 0
        return _BINARY.get(token.value, 0)

    def comparison(self, left: Term) -> Term:
        sign = self.take()
        if sign.value == "IS":
            negated = self.takes("keyword", "NOT")
            if not (self.takes("keyword", "NULL") or self.takes_null()):
                token = self.peek()
                raise syntax_error(f"`NULL` is expected instead of {token}", token.start, token.end)
            return self.keep(
                NullTestTerm(operand=left, negated=negated, start=left.start, end=self.tokens[self.index - 1].end), left
            )
        if sign.value == "NOT":
            inner = self.take()
            term = self.binary("IN", left, self.expression(_SUM), inner)
            return self.keep(UnaryTerm(operator="NOT", operand=term, start=term.start, end=term.end), term)
        operator = "==" if sign.value == "=" else str(sign.value)
        return self.binary(operator, left, self.expression(_SUM), sign)

    def takes_null(self) -> bool:
        token = self.peek()
        if token.kind == "word" and token.value is None:
            self.index += 1
            return True
        return False

    def prefix(self, level: int) -> Term:
        token = self.peek()
        self.nesting += 1
        if self.nesting > EXPRESSION_NESTING_MAX:
            raise syntax_error("the expression is nested too deeply", token.start, token.end)
        term = self._prefix(token, level)
        self.nesting -= 1
        return term

    def _prefix(self, token: ExpressionToken, level: int) -> Term:
        if token.kind == "keyword" and token.value == "NOT" and level <= _NOT:
            self.take()
            operand = self.expression(_NOT)
            return self.keep(UnaryTerm(operator="NOT", operand=operand, start=token.start, end=operand.end), operand)
        if token.kind == "keyword" and token.value in ("FORALL", "EXISTS") and level <= _NOT:
            return self.quantifier()
        if token.kind == "symbol" and token.value == "-":
            self.take()
            operand = self.prefix(_SIGN)
            return self.keep(UnaryTerm(operator="-", operand=operand, start=token.start, end=operand.end), operand)
        return self.postfix()

    def quantifier(self) -> Term:
        token = self.take()
        name = self.expect_name("variable")
        collection = self.postfix() if self.takes("keyword", "IN") else None
        self.expect(":")
        body = self.expression(_IMPLIES)
        inner = (body,) if collection is None else (collection, body)
        return self.keep(
            QuantifierTerm(
                kind=str(token.value),
                name=str(name.value),
                collection=collection,
                body=body,
                start=token.start,
                end=body.end,
            ),
            *inner,
        )

    def postfix(self) -> Term:
        term = self.atom()
        while True:
            if self.takes("symbol", "."):
                name = self.expect_name("field")
                self.refuse_method(term, name)
                word = (
                    {True: "true", False: "false", None: "null"}.get(name.value) if name.kind == "word" else name.value
                )
                term = self.keep(MemberTerm(target=term, name=str(word), start=term.start, end=name.end), term)
            elif self.takes("symbol", "["):
                index = self.expression(_IMPLIES)
                end = self.expect("]").end
                term = self.keep(IndexTerm(target=term, index=index, start=term.start, end=end), term, index)
            else:
                return term

    def refuse_method(self, target: Term, name: ExpressionToken) -> None:
        """Raise an error where a field is called as other languages call methods."""
        after = self.peek()
        if after.kind == "symbol" and after.value == "(":
            written = OTHER_FUNCTIONS.get(str(name.value), "")
            if name.value in FUNCTIONS:
                first = [] if isinstance(target, NameTerm) and target.name in _MODULES else [target]
                with suppress(ParseError):  # what stands between the parentheses is no list of expressions
                    self.take()
                    first += self.arguments(")")[0]
                written = f"{name.value}({', '.join(map(format_term, first))})"
            hint = f"write {written}" if written else "write the function before its argument: upper(text)"
            raise syntax_error("values have no methods", name.start, after.end, hint=hint)

    def atom(self) -> Term:
        token = self.take()
        if token.kind in ("number", "text", "word"):
            return self.keep(LiteralTerm(value=token.value, start=token.start, end=token.end))
        if token.kind == "keyword" and token.value == "NULL":
            return self.keep(LiteralTerm(value=None, start=token.start, end=token.end))
        if token.kind == "name":
            if self.takes("symbol", "("):
                return self.call(token)
            return self.keep(NameTerm(name=str(token.value), start=token.start, end=token.end))
        if token.kind == "symbol" and token.value == "[":
            items, end = self.arguments("]")
            return self.keep(ListTerm(items=items, start=token.start, end=end), *items)
        if token.kind == "symbol" and token.value == "(":
            term = self.expression(_IMPLIES)
            self.expect(")")
            return term
        if token.kind == "symbol" and token.value == "{":
            return self.braces(token)
        raise self.explain_unexpected(token, f"an expression is expected instead of {token}")

    def braces(self, opening: ExpressionToken) -> Term:
        """Return a map that is written out, or a placeholder."""
        keys: list[Term] = []
        values: list[Term] = []
        while not self.takes("symbol", "}"):
            if keys:
                self.expect(",")
            key = self.map_key()
            if not keys and not (self.peek().kind == "symbol" and self.peek().value == ":"):
                end = self.expect("}").end
                return self.keep(PlaceholderTerm(operand=key, start=opening.start, end=end), key)
            self.expect(":")
            keys.append(key)
            values.append(self.expression(_IMPLIES))
        end = self.tokens[self.index - 1].end
        term = MapTerm(keys=tuple(keys), values=tuple(values), start=opening.start, end=end)
        return self.keep(term, *keys, *values)

    def map_key(self) -> Term:
        token, after = self.peek(), self.tokens[min(self.index + 1, len(self.tokens) - 1)]
        if token.kind in ("name", "keyword") and after.kind == "symbol" and after.value == ":":
            self.take()
            return self.keep(LiteralTerm(value=str(token.value), start=token.start, end=token.end))
        return self.expression(_IMPLIES)

    def call(self, name: ExpressionToken) -> Term:
        star = self.peek()
        if star.kind == "symbol" and star.value == "*":
            self.take()
            end = self.expect(")").end
            arguments: tuple[Term, ...] = (StarTerm(start=star.start, end=star.end),)
        else:
            arguments, end = self.arguments(")")
        return self.keep(CallTerm(function=str(name.value), arguments=arguments, start=name.start, end=end), *arguments)

    def arguments(self, closing: str) -> tuple[tuple[Term, ...], int]:
        items: list[Term] = []
        if not (self.peek().kind == "symbol" and self.peek().value == closing):
            items.append(self.expression(_IMPLIES))
            while self.takes("symbol", ","):
                items.append(self.expression(_IMPLIES))
        return tuple(items), self.expect(closing).end

    # ------------------------------------------------------------ depth
    def binary(self, operator: str, left: Term, right: Term, sign: ExpressionToken) -> Term:
        term = BinaryTerm(operator=operator, left=left, right=right, start=left.start, end=right.end, sign=sign.start)
        return self.keep(term, left, right)

    def keep(self, term: Any, *inner: Term) -> Term:
        """Return the term, once its depth is known to be within the limit."""
        depth = 1 + max((self.depths.get(id(child), 0) for child in inner), default=0)
        if depth > EXPRESSION_DEPTH_MAX:
            raise syntax_error("the expression has too many parts", term.start, term.end)
        self.depths[id(term)] = depth
        self.kept.append(term)
        result: Term = term
        return result


# ---------------------------------------------------------------- tokens

KEYWORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "CONTAINS", "IS", "NULL", "FORALL", "EXISTS"})
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]++)
      | (?P<number>[0-9]++(?:\.[0-9]++)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")
      | (?P<symbol>=>|==|!=|<=|>=|[-+*/%<>()\[\].,:{}=])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_OTHER_SPELLINGS: Final = {
    "&": "AND",
    "|": "OR",
    "!": "NOT",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "∧": "AND",
    "∨": "OR",
    "?": "if(condition, a, b), or coalesce(a, b) for a value that may be null",
    ";": ", or a step of its own",
    "^": "the product x * x",
    "`": "a text in single or double quotes",
}
# Signs and words of other languages, by the token that the parser stops at, alone or with the one before it.
_MODULES: Final = ("Math", "math", "String", "Number", "Array", "Object", "datetime", "Date", "re", "json")
_OTHER_SIGNS: Final = {
    "=": "equality is written ==",
    "===": "equality is written ==",
    "->": "what follows from a condition is written =>",
    **dict.fromkeys(("+=", "-=", "*=", "/="), "write the new value; `output` of the step names the variable"),
    "//": "integer division is div(a, b)",
    "**": "write the product: x * x",
    "<>": "write !=",
    "if": "write if(condition, a, b)",
    "else": "write if(condition, a, b)",
    ":": "part of a text or list is slice(x, start, end); one of two values is if(condition, a, b)",
}


class ExpressionToken(NamedTuple):
    """`kind` is number, text, word (true, false, null), name, keyword, symbol or end."""

    kind: str
    value: Any
    start: int
    end: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.value}`" if self.kind != "text" else "a text"


def syntax_error(message: str, start: int, end: int, *, hint: str = "") -> ParseError:
    """Return an error at an offset of an expression; the caller knows where the expression stands."""
    return ParseError(message, line=1, column=start + 1, hint=hint or None, offset=start, end=end)


def tokens_of(text: str, start: int = 0, *, until_brace: bool = False) -> list[ExpressionToken]:
    """Return the tokens from an offset to the end, or to the brace that closes a placeholder; the last one has kind
    `end`."""
    tokens: list[ExpressionToken] = []
    position, depth = start, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        position = match.end()
        kind = str(match.lastgroup)
        if kind == "blank":
            continue
        token = _token(kind, match.group(), match.start(), match.end())
        if kind == "symbol" and token.value in "{}":
            depth += 1 if token.value == "{" else -1
            if depth < 0 and until_brace:
                return [*tokens, ExpressionToken("end", "", token.start, token.end)]
        tokens.append(token)
    if until_brace:
        raise syntax_error(
            "the placeholder has no closing brace", start - 1, start, hint="a brace itself is written {{"
        )
    return [*tokens, ExpressionToken("end", "", len(text), len(text))]


def _token(kind: str, text: str, start: int, end: int) -> ExpressionToken:
    if kind == "number":
        if len(text) > NUMBER_DIGITS_MAX:
            raise syntax_error("the number is too long", start, end)
        return ExpressionToken("number", Decimal(text) if "." in text else int(Decimal(text)), start, end)
    if kind == "text":
        return ExpressionToken("text", _ESCAPE.sub(_unescape, text[1:-1]), start, end)
    if kind == "name" and text in _WORDS:
        return ExpressionToken("word", _WORDS[text], start, end)
    if kind == "name" and text in KEYWORDS:
        return ExpressionToken("keyword", text, start, end)
    return ExpressionToken(kind, text, start, end)


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])


def _unreadable(text: str, position: int) -> ParseError:
    char = text[position]
    if char in "'\"":
        return syntax_error("the text has no closing quote", position, len(text))
    spelling = _OTHER_SPELLINGS.get(char)
    hint = f"write {spelling}" if spelling else ""
    if char == "!" and text[position : position + 3] == "!==":
        hint = "write !="
    return syntax_error(f"unexpected character {char!r}", position, position + 1, hint=hint)


# ---------------------------------------------------------------- templates


class ParsedTemplate(msgspec.Struct, frozen=True):
    """Texts and terms in order; neighbouring texts are joined."""

    parts: tuple[str | Term, ...]

    @property
    def single(self) -> Term | None:
        """The term of a template that is nothing else."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], Term) else None

    @property
    def text(self) -> str | None:
        """The text of a template without placeholders."""
        return None if any(isinstance(part, Term) for part in self.parts) else "".join(map(str, self.parts))


def has_placeholder(text: str) -> bool:
    """Return whether a text has a brace that is not doubled."""
    return "{" in text.replace("{{", "")


def parse_template(text: str) -> ParsedTemplate:
    """Return the parts of a template; ParseError with the offset of a mistake."""
    if len(text) > TEMPLATE_CHARS_MAX:
        raise syntax_error(f"the template has more than {TEMPLATE_CHARS_MAX} characters", 0, 0)
    parts: list[str | Term] = []
    plain: list[str] = []
    position = count = 0
    while position < len(text):
        char = text[position]
        if char in "{}" and text[position + 1 : position + 2] == char:
            plain.append(char)
            position += 2
        elif char == "{":
            count += 1
            if count > TEMPLATE_PLACEHOLDERS_MAX:
                raise syntax_error(f"more than {TEMPLATE_PLACEHOLDERS_MAX} placeholders", position, position + 1)
            # The tree of a placeholder whose text begins at an offset, and the offset after its closing brace.
            start = position + 1
            tokens = tokens_of(text, start, until_brace=True)
            if tokens[-1].start - start > EXPRESSION_CHARS_MAX:
                raise syntax_error(f"the placeholder has more than {EXPRESSION_CHARS_MAX} characters", start, start)
            term, position = _Parser(tokens).parse_all(), tokens[-1].end
            if plain:
                parts.append("".join(plain))
                plain = []
            parts.append(term)
        elif char == "}":
            raise syntax_error("a closing brace without an opening one", position, position + 1, hint="write }}")
        else:
            plain.append(char)
            position += 1
    if plain or not parts:
        parts.append("".join(plain))
    return ParsedTemplate(tuple(parts))
