"""The one layout of a Vega source: `format_source`.

Four spaces, one statement a line, lines of at most 100 columns where the source allows it, at most one empty line in a
row. Every comment is kept. Formatting what is formatted changes nothing, and the tree of the result is the tree of the
source. `layout` fits text into lines, `comments` hands out comments, `blocks` writes the lines of a block,
`expressions` values, `statements` statements and declarations.
"""

from __future__ import annotations

from typing import Final

from lyra.errors import ParseError
from lyra.vega.format.blocks import FormatState, format_lines
from lyra.vega.format.comments import Comments
from lyra.vega.format.layout import render
from lyra.vega.format.statements import STATEMENTS
from lyra.vega.syntax.lexer import lex
from lyra.vega.syntax.parser import parse_all
from lyra.vega.syntax.source import Source, source_error

WIDTH: Final = 100


def format_source(text: str, name: str = "<vega>") -> str:
    """The source in its one layout; ParseError if it cannot be read."""
    source = Source(name, text)
    parsed = parse_all(source)
    if parsed.problems:
        raise source_error(ParseError, parsed.problems)
    state = FormatState(text, Comments(source, lex(source)), STATEMENTS)
    try:
        lines = format_lines(state, parsed.module.statements, len(text) + 1)
    except RecursionError:  # the parser bounds the depth, so the caller's own stack was deep already
        raise source_error(ParseError, [source.problem(0, 1, "this is nested too deeply to be formatted")]) from None
    return render(lines, WIDTH).lstrip("\n") + "\n" if lines else ""
