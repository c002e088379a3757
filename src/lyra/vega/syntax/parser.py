"""From a source to its tree: `parse`.

The parser is functions over one `Cursor`, which holds the tokens, the place in them and the mistakes so far. They are
in `types`, `expressions`, `simple_statements`, `patterns`, `statements` and `declarations`; each file builds on those
before it. A rule that leads back up (a lambda holds a block) goes through the cursor's `Grammar`, which is put together
here. The parser knows the shape of a program only; the checker knows names and types.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lyra.core.limits import VEGA_NESTING_MAX, VEGA_PROBLEMS_MAX, VEGA_SOURCE_CHARS_MAX
from lyra.errors import ParseError
from lyra.vega.syntax.ast import Module, Statement
from lyra.vega.syntax.cursor import Cursor, Grammar
from lyra.vega.syntax.declarations import DECLARATIONS
from lyra.vega.syntax.expressions import EXPRESSIONS
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.patterns import MATCHES
from lyra.vega.syntax.source import Diagnostic, Source, source_error
from lyra.vega.syntax.statements import STATEMENTS, parse_block, parse_statements

GRAMMAR: Final = Grammar({**EXPRESSIONS, **MATCHES}, {**STATEMENTS, **DECLARATIONS}, parse_block)


class Parsed(NamedTuple):
    """The tree, as far as it could be read, and every mistake in it."""

    module: Module
    problems: list[Diagnostic]
    is_unfinished: bool = False  # it breaks off: with more text it might be right


def parse(text: str, name: str = "<vega>") -> Module:
    """The tree of a source; ParseError with all mistakes in `fields["problems"]`."""
    parsed = parse_all(Source(name, text))
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    return parsed.module


def parse_all(source: Source) -> Parsed:
    """The tree and the mistakes of a source, without raising."""
    empty = Module([], [], at=0, end=len(source.text))
    if len(source.text) > VEGA_SOURCE_CHARS_MAX:
        return Parsed(empty, [source.problem(0, 1, f"a source has at most {VEGA_SOURCE_CHARS_MAX} characters")])
    lexed = lex(source)
    if lexed.cut_off:
        return Parsed(empty, lexed.problems, is_unfinished=True)
    cursor = Cursor(source, lexed.tokens, GRAMMAR)
    try:
        statements = parse_module(cursor)
    except RecursionError:  # the caller was deep already
        cursor.note(0, 1, "this is nested too deeply", f"at most {VEGA_NESTING_MAX} levels")
        statements = []
    module = Module(statements, lexed.comments, at=0, end=len(source.text))
    is_unfinished = cursor.is_unfinished and not lexed.problems
    return Parsed(module, _together(lexed.problems, cursor.problems), is_unfinished)


def _together(lexical: list[Diagnostic], syntactical: list[Diagnostic]) -> list[Diagnostic]:
    """Both kinds in order of place; a line whose characters are wrong is not judged a second time."""
    told = {problem.line for problem in lexical}
    kept = [problem for problem in syntactical if problem.line not in told]
    return sorted(lexical + kept, key=lambda problem: problem.at)[:VEGA_PROBLEMS_MAX]


def parse_module(cursor: Cursor) -> list[Statement]:
    statements: list[Statement] = []
    while True:
        parse_statements(cursor, statements)
        if cursor.kinds[cursor.i] == "end":
            return statements
        cursor.note(cursor.starts[cursor.i], cursor.ends[cursor.i], "this `}` closes nothing")
        cursor.i += 1
