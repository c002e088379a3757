"""The tables that a query reads.

    query_tables("SELECT u.id FROM users u, orders o").tables  →  ("users", "orders")

A query is one SELECT, or WITH … SELECT, that only reads. Tables stand in lists after FROM and JOIN, after IN, and in
queries inside queries; names of a WITH are no tables where they are visible. Names without quotes are lower-cased.
Whatever is not understood for certain raises `SqlRefused`: other statements, two statements, functions that
`tokens` does not list, tables of the databases themselves. The checker asks for one right for each table, and
the same reader runs again before a statement is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from lyra.vesper.sql.tokens import (
    AFTER_FROM,
    JOIN_WORDS,
    REFUSED_WORDS,
    ROW_FUNCTIONS,
    SET_OPERATORS,
    WRITING_HINT,
    WRITING_WORDS,
    SqlItem,
    SqlParenthesis,
    SqlRefused,
    SqlToken,
    after_alias,
    after_join,
    after_word,
    check_call,
    condition_end,
    ends_table,
    is_clause,
    is_comma,
    is_comparison,
    is_query,
    item_of,
    name_of,
    not_understood,
    sql_tokens,
    table_name,
    tree_of,
    unknown_function,
    word_of,
)

_ONLY_READS: Final = "a query is one SELECT, or WITH … SELECT, that only reads"
_TABLE_PART: Final = re.compile(r"[^\W\d]\w*")
_OWN_TABLES: Final = frozenset({"lyra_effects"})
_SYSTEM_PREFIXES: Final = ("sqlite_", "pg_", "pragma_")
_SYSTEM_SCHEMAS: Final = frozenset({"information_schema", "pg_catalog", "sys"})
_WITH_MEANINGS: Final = ("TIME", "TIES", "ORDINALITY")


_Visible: TypeAlias = frozenset[str]  # names of WITH that are no tables here


class QueryTables(NamedTuple):
    """The tables that a query reads, in order of appearance, and the names that its WITH lists give to queries."""

    tables: tuple[str, ...]
    with_names: tuple[str, ...] = ()


def query_tables(query: str) -> QueryTables:
    """Return the tables of a query; SqlRefused where it is no query or not certain."""
    tokens = sql_tokens(query)
    while tokens and tokens[-1].is_operator(";"):
        tokens.pop()
    for token in tokens:
        if token.is_operator(";"):
            raise SqlRefused("a step has one statement", token.start, "write a step for each statement")
    items = tree_of(tokens)
    if not is_query(items):
        first = tokens[0] if tokens else None
        hint = WRITING_HINT if first is not None and first.kind == "word" else ""
        raise SqlRefused(_ONLY_READS, first.start if first is not None else 0, hint)
    reader = _TableReader()
    reader.query(items, frozenset())
    return QueryTables(tuple(reader.tables), tuple(reader.with_names))


def query_columns(query: str) -> tuple[str, ...] | None:
    """Return the names of the columns that a query gives, in lower case; None where they are not all written there."""
    try:
        return _select_names(tree_of(sql_tokens(query)))
    except SqlRefused:  # what stands in a column is no name
        return None


def _select_names(items: Sequence[SqlItem]) -> tuple[str, ...] | None:
    if word_of(items, 0) != "SELECT":
        return None
    names: list[str] = []
    part: list[SqlItem] = []
    for position in range(2 if word_of(items, 1) in ("DISTINCT", "ALL") else 1, len(items) + 1):
        is_over = position == len(items) or word_of(items, position) == "FROM"
        if not is_over and not is_comma(items[position]):
            part.append(items[position])
            continue
        before = part[-2] if len(part) > 1 else None
        is_qualified = isinstance(before, SqlToken) and before.is_operator(".")
        is_named = len(part) == 1 or word_of(part, len(part) - 2) == "AS" or is_qualified
        name = name_of(part[-1]) if part and is_named else ""
        if not name:
            return None
        names.append(name.lower())
        part = []
        if is_over:
            break
    return tuple(names)


def table_problem(name: str) -> str:
    """Return why a name (with a schema, or without) is no table of a step; empty where it is one."""
    parts = name.split(".")
    if len(parts) > 2 or not all(_TABLE_PART.fullmatch(part) for part in parts):
        return f"`{name}` is no plain name of a table"
    return f"`{name}` is a table of the database's own" if is_system_table(name) else ""


def is_system_table(name: str) -> bool:
    """Return whether a table belongs to the database itself or to Lyra, so that no right of a node can name it."""
    parts = name.lower().split(".")
    return (
        parts[-1].startswith(_SYSTEM_PREFIXES)
        or parts[-1] in _OWN_TABLES
        or any(part in _SYSTEM_SCHEMAS or part.startswith("pg_") for part in parts[:-1])
    )


class _TableReader:
    """Collects the tables of one statement."""

    def __init__(self) -> None:
        self.tables: dict[str, None] = {}
        self.with_names: dict[str, None] = {}

    # ------------------------------------------------------------ queries
    def query(self, items: Sequence[SqlItem], visible: _Visible) -> None:
        """WITH …, then SELECTs that UNION, INTERSECT and EXCEPT join."""
        position = 0
        if word_of(items, 0) == "WITH":
            position, visible = self._with(items, visible)
        parts: list[list[SqlItem]] = [[]]
        for item in items[position:]:
            if isinstance(item, SqlToken) and item.is_word(*SET_OPERATORS):
                parts.append([])
            elif not (isinstance(item, SqlToken) and item.is_word("ALL", "DISTINCT") and not parts[-1]):
                parts[-1].append(item)
        for part in parts:
            self._select(part, visible)

    def _with(self, items: Sequence[SqlItem], visible: _Visible) -> tuple[int, _Visible]:
        """Return the position after the list of WITH, and the names that are visible there."""
        position = 1
        is_recursive = word_of(items, position) == "RECURSIVE"
        position += is_recursive
        queries: list[tuple[str, SqlParenthesis]] = []
        while True:
            name = name_of(item_of(items, position))
            position += 1
            if isinstance(item_of(items, position), SqlParenthesis):  # names of columns
                self._names(item_of(items, position))
                position += 1
            position = after_word(items, position, "AS")
            position += word_of(items, position) == "NOT"
            position += word_of(items, position) == "MATERIALIZED"
            body = item_of(items, position)
            if not isinstance(body, SqlParenthesis):
                raise not_understood(body)
            queries.append((name, body))
            position += 1
            if not is_comma(item_of(items, position)):
                break
            position += 1
        names = frozenset(name for name, _ in queries)
        for name, body in queries:
            if not is_query(body.items):
                raise SqlRefused(_ONLY_READS, body.start, WRITING_HINT)
            self.query(body.items, visible | names if is_recursive else visible)
            visible |= {name}
            self.with_names.setdefault(name)
        return position, visible

    def _select(self, items: Sequence[SqlItem], visible: _Visible) -> None:
        first = item_of(items, 0)
        if isinstance(first, SqlParenthesis) and is_query(first.items):
            self.query(first.items, visible)
            self._expression(items[1:], visible)
            return
        if word_of(items, 0) not in ("SELECT", "VALUES"):
            hint = WRITING_HINT if word_of(items, 0) in WRITING_WORDS else ""
            raise SqlRefused(_ONLY_READS, first.start if first is not None else 0, hint)
        start = self._from_position(items)
        self._expression(items[1:start], visible)
        if start < len(items):
            end = self._from_list(items, start + 1, visible)
            self._expression(items[end:], visible)

    def _from_position(self, items: Sequence[SqlItem]) -> int:
        for position, item in enumerate(items):
            if isinstance(item, SqlToken) and item.is_word("FROM") and not is_comparison(items, position):
                return position
        return len(items)

    # ------------------------------------------------------------ lists of tables
    def _from_list(self, items: Sequence[SqlItem], position: int, visible: _Visible) -> int:
        """Read tables, joins and their conditions; return the position of the clause behind them."""
        position = self._table(items, position, visible)
        while position < len(items):
            item, word = items[position], word_of(items, position)
            if is_comma(item):
                position = self._table(items, position + 1, visible)
            elif word in JOIN_WORDS:
                position = self._table(items, after_join(items, position), visible)
            elif word == "ON":
                end = condition_end(items, position + 1)
                self._expression(items[position + 1 : end], visible)
                position = end
            elif word == "USING":
                self._names(item_of(items, position + 1))
                position = after_alias(items, position + 2, needs_as=True)
            elif word in AFTER_FROM and is_clause(items, position):
                return position
            else:
                raise not_understood(item)
        return position

    def _table(self, items: Sequence[SqlItem], position: int, visible: _Visible) -> int:
        """Read one entry of a list of tables; return the position after it and its alias."""
        if word_of(items, position) == "LATERAL":
            position += 1
            if not any(isinstance(item, SqlParenthesis) for item in items[position : position + 2]):
                raise not_understood(item_of(items, position))
        item = item_of(items, position)
        if isinstance(item, SqlParenthesis):
            if is_query(item.items):
                self.query(item.items, visible)
            elif self._from_list(item.items, 0, visible) < len(item.items):
                raise not_understood(item)
            return self._after_table(items, position + 1, visible)
        if word_of(items, position) == "ONLY" and not ends_table(items, position + 1):
            position += 1
        name, position, start = table_name(items, position)
        arguments = item_of(items, position)
        if isinstance(arguments, SqlParenthesis):
            if name not in ROW_FUNCTIONS:
                raise unknown_function(name, start)
            self._expression(arguments.items, visible)
            position += 1
        else:
            self._add(name, start, visible)
        return self._after_table(items, position, visible)

    def _after_table(self, items: Sequence[SqlItem], position: int, visible: _Visible) -> int:
        if word_of(items, position) == "WITH" and word_of(items, position + 1) == "ORDINALITY":
            position += 2
        position = after_alias(items, position)
        columns = item_of(items, position)
        if isinstance(columns, SqlParenthesis):
            self._names(columns)
            position += 1
        if word_of(items, position) == "NOT" and word_of(items, position + 1) == "INDEXED":
            return position + 2
        if word_of(items, position) == "INDEXED" and word_of(items, position + 1) == "BY":
            name_of(item_of(items, position + 2))
            return position + 3
        if word_of(items, position) == "TABLESAMPLE" and word_of(items, position + 1) in ("BERNOULLI", "SYSTEM"):
            share = item_of(items, position + 2)
            if not isinstance(share, SqlParenthesis):
                raise not_understood(share)
            self._expression(share.items, visible)
            return position + 3
        return position

    def _names(self, item: SqlItem | None) -> None:
        """Read names of columns between parentheses."""
        if not isinstance(item, SqlParenthesis):
            raise not_understood(item)
        for inner in item.items:
            if not is_comma(inner):
                name_of(inner)

    def _add(self, name: str, start: int, visible: _Visible) -> None:
        if name in visible:
            return
        problem = table_problem(name)
        if problem:
            raise SqlRefused(problem, start)
        self.tables.setdefault(name)

    # ------------------------------------------------------------ expressions
    def _expression(self, items: Sequence[SqlItem], visible: _Visible, *, takes_from: bool = False) -> None:
        """Read columns, operators, calls and inner queries; `takes_from`: arguments such as those of
        `extract(year FROM x)`."""
        for position, item in enumerate(items):
            if isinstance(item, SqlParenthesis):
                self._parenthesis(items, position, visible)
            elif item.is_word("IN"):
                self._in(items, position + 1, visible)
            elif item.is_word("FROM"):
                if not takes_from and not is_comparison(items, position):
                    raise not_understood(item)
            elif (
                item.kind == "word"
                and item.value.upper() in REFUSED_WORDS
                and not self._is_harmless(items, position, takes_from=takes_from)
            ):
                raise not_understood(item)

    def _is_harmless(self, items: Sequence[SqlItem], position: int, *, takes_from: bool) -> bool:
        """Return whether a refused word stands where it has another meaning: a call, a column, `WITH TIME ZONE`."""
        word = word_of(items, position)
        if word == "WITH":
            return word_of(items, position + 1) in _WITH_MEANINGS
        if word == "FOR":
            return takes_from
        return word == "REPLACE" and isinstance(item_of(items, position + 1), SqlParenthesis)

    def _parenthesis(self, items: Sequence[SqlItem], position: int, visible: _Visible) -> None:
        inner = items[position]
        assert isinstance(inner, SqlParenthesis)
        before = items[position - 1] if position else None
        takes_from = False
        if isinstance(before, SqlToken) and before.kind in ("word", "name", "text"):
            takes_from = check_call(items, position - 1)
        if is_query(inner.items):
            self.query(inner.items, visible)
        else:
            self._expression(inner.items, visible, takes_from=takes_from)

    def _in(self, items: Sequence[SqlItem], position: int, visible: _Visible) -> None:
        """Read what follows IN; SQLite allows `x IN table`, which reads the table."""
        item = item_of(items, position)
        if isinstance(item, SqlParenthesis) or (item is not None and item.kind in ("placeholder", "mark")):
            return
        name, _, start = table_name(items, position)
        self._add(name, start, visible)
