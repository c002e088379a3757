"""The parts of a statement: tokens with parentheses as trees, and the small questions that a reader asks about them.

`tables` walks these parts. Words that begin a list of tables, a query or a change are in one table here; a name
without quotes is never one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from lyra.vesper.sql.functions import FUNCTIONS, FUNCTIONS_WITH_FROM, WORDS_BEFORE_PARENTHESIS
from lyra.vesper.sql.tokens import SqlRefused, SqlToken
from lyra.vesper.values.limits import SQL_NESTING_MAX

SET_OPERATORS: Final = ("UNION", "INTERSECT", "EXCEPT")
_QUERY_STARTS: Final = ("SELECT", "WITH", "VALUES")
JOIN_WORDS: Final = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "JOIN")
AFTER_FROM: Final = ("WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH")
_NUMBERS: Final = ("number", "placeholder", "mark")
_NO_ALIASES: Final = frozenset({*JOIN_WORDS, *AFTER_FROM, "ON", "USING", "AS", "TABLESAMPLE", "INDEXED", "NOT"})
WRITING_WORDS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "INTO"})
# Words that begin a list of tables, a query or a change. Where the reader does not expect them, the query is refused.
REFUSED_WORDS: Final = WRITING_WORDS | frozenset(
    {"FROM", "JOIN", "SELECT", "VALUES", "WITH", "TABLE", "FOR", "RETURNING", "LATERAL", "TABLESAMPLE", "OPERATOR"}
)
WRITING_HINT: Final = "database_write adds a row, database_update changes rows"


class SqlParenthesis(NamedTuple):
    """What stands between two parentheses."""

    items: list[SqlItem]
    start: int


SqlItem: TypeAlias = "SqlToken | SqlParenthesis"


def tree_of(tokens: Sequence[SqlToken]) -> list[SqlItem]:
    """Tokens with parentheses as trees."""
    open_lists: list[SqlParenthesis] = [SqlParenthesis([], 0)]
    for token in tokens:
        if token.is_operator("("):
            if len(open_lists) > SQL_NESTING_MAX:
                raise SqlRefused(
                    f"the query has more than {SQL_NESTING_MAX} parentheses inside each other", token.start
                )
            open_lists.append(SqlParenthesis([], token.start))
        elif token.is_operator(")"):
            if len(open_lists) == 1:
                raise SqlRefused("a parenthesis is closed that was not opened", token.start)
            closed = open_lists.pop()
            open_lists[-1].items.append(closed)
        else:
            open_lists[-1].items.append(token)
    if len(open_lists) > 1:
        raise SqlRefused("a parenthesis is not closed", open_lists[-1].start)
    return open_lists[0].items


def item_of(items: Sequence[SqlItem], position: int) -> SqlItem | None:
    return items[position] if 0 <= position < len(items) else None


def word_of(items: Sequence[SqlItem], position: int) -> str:
    item = item_of(items, position)
    return item.value.upper() if isinstance(item, SqlToken) and item.kind == "word" else ""


def is_comma(item: SqlItem | None) -> bool:
    return isinstance(item, SqlToken) and item.is_operator(",")


def is_query(items: Sequence[SqlItem]) -> bool:
    if word_of(items, 0) in _QUERY_STARTS:
        return True
    first = item_of(items, 0)
    if not isinstance(first, SqlParenthesis) or not is_query(first.items):
        return False
    return any(isinstance(item, SqlToken) and item.is_word(*SET_OPERATORS) for item in items)


def is_comparison(items: Sequence[SqlItem], position: int) -> bool:
    """Whether FROM belongs to IS [NOT] DISTINCT FROM."""
    if word_of(items, position - 1) != "DISTINCT":
        return False
    before = word_of(items, position - 2)
    return before == "IS" or (before == "NOT" and word_of(items, position - 3) == "IS")


def name_of(item: SqlItem | None) -> str:
    if isinstance(item, SqlToken) and item.kind == "name":
        return item.value
    if isinstance(item, SqlToken) and item.kind == "word" and item.value.upper() not in REFUSED_WORDS:
        return item.value.lower()
    raise not_understood(item)


def table_name(items: Sequence[SqlItem], position: int) -> tuple[str, int, int]:
    """A table's name with its schema, the position after it, and its place in the text."""
    first = item_of(items, position)
    parts = [name_of(first)]
    position += 1
    while True:
        item = item_of(items, position)
        if not (isinstance(item, SqlToken) and item.is_operator(".")):
            break
        parts.append(name_of(item_of(items, position + 1)))
        position += 2
    start = first.start if first is not None else 0
    if any("." in part for part in parts):
        raise SqlRefused("a table's name has no dot in its quotes", start)
    return ".".join(parts), position, start


def after_alias(items: Sequence[SqlItem], position: int, *, needs_as: bool = False) -> int:
    if word_of(items, position) == "AS":
        name_of(item_of(items, position + 1))
        return position + 2
    item = item_of(items, position)
    if needs_as or not isinstance(item, SqlToken) or item.kind not in ("word", "name"):
        return position
    if item.kind == "word" and item.value.upper() in _NO_ALIASES:
        return position
    name_of(item)
    return position + 1


def ends_table(items: Sequence[SqlItem], position: int) -> bool:
    item = item_of(items, position)
    return item is None or is_comma(item) or word_of(items, position) in _NO_ALIASES


def after_join(items: Sequence[SqlItem], position: int) -> int:
    """The position after [NATURAL] [LEFT [OUTER] …] JOIN."""
    while word_of(items, position) in JOIN_WORDS and word_of(items, position) != "JOIN":
        position += 1
    return after_word(items, position, "JOIN")


def condition_end(items: Sequence[SqlItem], position: int) -> int:
    """Where the condition of a join ends."""
    while position < len(items):
        word = word_of(items, position)
        is_call = isinstance(item_of(items, position + 1), SqlParenthesis)
        if is_comma(items[position]) or word in ("ON", "USING", *AFTER_FROM):
            return position
        if word in JOIN_WORDS and not (word in ("LEFT", "RIGHT") and is_call):
            return position
        position += 1
    return position


def is_clause(items: Sequence[SqlItem], position: int) -> bool:
    """Whether a word after a table begins a clause. SQLite takes `window`, `offset` and `fetch` for aliases, too."""
    word, after = word_of(items, position), item_of(items, position + 1)
    if word == "WINDOW":
        return word_of(items, position + 2) == "AS" and isinstance(item_of(items, position + 3), SqlParenthesis)
    if word == "OFFSET":
        return isinstance(after, SqlToken) and after.kind in _NUMBERS
    return word != "FETCH" or word_of(items, position + 1) in ("FIRST", "NEXT")


def after_word(items: Sequence[SqlItem], position: int, word: str) -> int:
    if word_of(items, position) != word:
        raise not_understood(item_of(items, position))
    return position + 1


def check_call(items: Sequence[SqlItem], position: int) -> bool:
    """Check the function that is called; whether its arguments may have a FROM."""
    token = items[position]
    assert isinstance(token, SqlToken)
    before = item_of(items, position - 1)
    is_qualified = isinstance(before, SqlToken) and before.is_operator(".")
    if token.kind == "word" and not is_qualified and token.value.upper() in WORDS_BEFORE_PARENTHESIS:
        return False
    name = token.value.lower() if token.kind == "word" else token.value
    if is_qualified or name not in FUNCTIONS:
        raise unknown_function(name, token.start)
    return name in FUNCTIONS_WITH_FROM


def unknown_function(name: str, start: int) -> SqlRefused:
    hint = "queries call functions that only compute, such as lower, coalesce, count; without a schema"
    return SqlRefused(f"a query may not call `{name[:80]}`", start, hint)


def not_understood(item: SqlItem | None) -> SqlRefused:
    if item is None:
        return SqlRefused("the query ends too early")
    if isinstance(item, SqlParenthesis):
        return SqlRefused("the parenthesis is not understood here", item.start)
    hint = WRITING_HINT if item.is_word(*WRITING_WORDS) else "write a column of this name in double quotes"
    return SqlRefused(f"`{item.value[:80]}` is not understood here", item.start, hint)
