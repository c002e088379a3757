"""Words and parts of SQL: names, quoted texts, numbers, placeholders and operators, with parentheses as trees.

SQLite and PostgreSQL must see the same tokens, because the rights of a step are read from them. A text that the two
databases would cut differently is refused (`SqlRefused`): comments inside comments, `E'\\''`, `$tag$` texts, names in
brackets or backticks with more than plain letters in them, letters beyond ASCII outside quotes, control characters.
Comments and white space give no tokens. Words that begin a list of tables, a query or a change are in one table; a
name without quotes is never one of them. A query may call the functions listed here: they compute from their arguments,
and none reads a file, a table or a setting, waits, opens a connection or changes anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from lyra.vesper.values.limits import SQL_NESTING_MAX

# The checker marks a placeholder of the node's file with NUL characters until it is a `:p0`.
PLACEHOLDER_MARK: Final = re.compile(r"\x00(p\d+)\x00")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
_BRACKETS: Final = re.compile(r"\[[A-Za-z0-9_ ,.:]*\]")
_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_DOLLAR_TEXT: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$")
_PATTERNS: Final = (
    ("placeholder", re.compile(r":[A-Za-z_][A-Za-z0-9_]*")),
    ("word", re.compile(r"[A-Za-z_][A-Za-z0-9_]*")),
    ("number", re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_$])")),
    ("operator", re.compile(r"::|[(),.;\[\]]|[-+*/<>=~!@#%^&|?]")),
)


class SqlRefused(ValueError):
    """A statement that cannot be read for certain. `start` is the place in the text."""

    def __init__(self, message: str, start: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.hint = hint


class SqlToken(NamedTuple):
    """One token. Kinds: word, name (quoted), text, number, placeholder, mark, operator. `value` has no quotes."""

    kind: str
    value: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value.upper() in words

    def is_operator(self, *operators: str) -> bool:
        return self.kind == "operator" and self.value in operators


def sql_tokens(text: str) -> list[SqlToken]:
    """Return the tokens of a text; SqlRefused where databases could read it in different ways."""
    control = _CONTROL.search(text)
    if control is not None:
        raise SqlRefused("the query has a control character in it", control.start())
    tokens: list[SqlToken] = []
    position = 0
    while position < len(text):
        if text[position] in " \t\r\n":
            position += 1
        elif text.startswith(("--", "/*"), position):
            position = _comment_end(text, position)
        else:
            token = _token(text, position)
            tokens.append(token)
            position = token.end
    return tokens


def _token(text: str, start: int) -> SqlToken:
    if text[start] == "'":
        return _read_quoted(text, start, "text")
    if text[start] == '"':
        return _read_quoted(text, start, "name")
    if text[start] == "`":
        token = _read_quoted(text, start, "name")
        if not _PLAIN_NAME.fullmatch(token.value):
            raise SqlRefused(f"{text[token.start : token.end][:80]} is no plain name", token.start, "use double quotes")
        return token
    if text[start] == "[":
        # The token of SQLite's `[name]`, or of an index or list of plain values in PostgreSQL, which reads no table.
        match = _BRACKETS.match(text, start)
        if match is None:
            raise SqlRefused("brackets take a name or plain values", start, "write names in double quotes")
        return SqlToken("name", match[0][1:-1], start, match.end())
    mark = PLACEHOLDER_MARK.match(text, start)
    if mark is not None:
        return SqlToken("mark", mark[1], start, mark.end())
    if text[start : start + 2] in ("E'", "e'"):
        # The text of PostgreSQL's `E'…'`; an escaped quote is refused, since it would end the text in SQLite.
        end = _read_quoted(text, start + 1, "text").end
        position = start + 2
        while position < end:
            if text[position] == "\\":
                if text.startswith("'", position + 1):
                    raise SqlRefused("a quote after a backslash is not read", position, "write two quotes: ''")
                position += 1
            position += 1
        return SqlToken("text", text[start + 2 : end - 1], start, end)
    if text[start : start + 3].upper() in ("U&'", 'U&"'):
        raise SqlRefused("texts and names with U& are not read", start, "write the characters themselves")
    for kind, pattern in _PATTERNS:
        match = pattern.match(text, start)
        if match is not None:
            return SqlToken(kind, match[0], start, match.end())
    if _DOLLAR_TEXT.match(text, start):
        raise SqlRefused("a text between $ signs is not read", start, "write it in single quotes")
    hint = "write names with other letters in double quotes" if ord(text[start]) > 127 else ""
    raise SqlRefused(f"{text[start]!r} has no meaning here", start, hint)


def _read_quoted(text: str, start: int, kind: str) -> SqlToken:
    """Return a quoted text or name; the quote itself is doubled in it."""
    quote, position = text[start], start + 1
    while (end := text.find(quote, position)) >= 0:
        if not text.startswith(quote, end + 1):
            return SqlToken(kind, text[start + 1 : end].replace(quote * 2, quote), start, end + 1)
        position = end + 2
    raise SqlRefused(f"the quote {quote} is not closed", start)


def _comment_end(text: str, start: int) -> int:
    if text.startswith("--", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    end = text.find("*/", start + 2)
    if end < 0:
        raise SqlRefused("the comment is not closed", start)
    inner = text.find("/*", start + 2)
    if 0 <= inner < end + 1:
        raise SqlRefused("a comment inside a comment is not read", inner, "take the inner comment out")
    return end + 2


# ---------------------------------------------------------------- functions

_AGGREGATES: Final = """
    count sum avg min max total group_concat string_agg array_agg json_agg jsonb_agg json_object_agg jsonb_object_agg
    json_group_array json_group_object bool_and bool_or every stddev stddev_pop stddev_samp variance var_pop var_samp
    corr percentile_cont percentile_disc mode row_number rank dense_rank percent_rank cume_dist ntile lag lead
    first_value last_value nth_value grouping
"""
_NUMBERS: Final = """
    abs ceil ceiling floor round trunc sign mod div power pow sqrt cbrt exp ln log log10 log2 pi degrees radians sin cos
    tan asin acos atan atan2 random greatest least width_bucket
"""
_TEXTS: Final = """
    lower upper initcap length char_length character_length octet_length bit_length substr substring left right trim
    ltrim rtrim btrim replace reverse strpos instr concat concat_ws split_part translate ascii chr unicode hex
    to_hex quote quote_literal md5 sha256 encode decode regexp_replace regexp_match regexp_matches starts_with like glob
    overlay string_to_array array_to_string format printf
"""
_VALUES: Final = """
    coalesce nullif ifnull iif cast typeof pg_typeof row array array_length array_position array_append cardinality
    gen_random_uuid likely unlikely
"""
_TIMES: Final = """
    date datetime julianday unixepoch strftime now date_trunc date_part date_bin extract age to_char to_date
    to_timestamp to_number make_date make_time make_timestamp make_timestamptz make_interval justify_days isfinite
    clock_timestamp statement_timestamp transaction_timestamp
"""
_JSON: Final = """
    json json_extract json_array json_array_length json_object json_type json_valid json_quote json_typeof
    json_build_object json_build_array jsonb_build_object jsonb_build_array json_extract_path json_extract_path_text
    jsonb_extract_path jsonb_extract_path_text jsonb_array_length jsonb_typeof to_json to_jsonb row_to_json
    jsonb_set json_set json_strip_nulls jsonb_strip_nulls jsonb_path_exists jsonb_path_query_first
"""
_ROWS: Final = """
    generate_series unnest json_each json_tree json_each_text jsonb_each jsonb_each_text json_array_elements
    json_array_elements_text jsonb_array_elements jsonb_array_elements_text json_object_keys jsonb_object_keys
    regexp_split_to_table string_to_table
"""
_SIZED_TYPES: Final = (
    "numeric decimal varchar char character varying float bit timestamp timestamptz time interval dec nchar"
)
ROW_FUNCTIONS: Final = frozenset(_ROWS.split())
FUNCTIONS: Final = frozenset(
    " ".join((_AGGREGATES, _NUMBERS, _TEXTS, _VALUES, _TIMES, _JSON, _ROWS, _SIZED_TYPES)).split()
)
FUNCTIONS_WITH_FROM: Final = frozenset({"extract", "substring", "trim", "overlay"})
_BEFORE_PARENTHESIS: Final = """
    ALL AND ANY ARRAY AS BETWEEN BY CASE CUBE DISTINCT ELSE ESCAPE EXCEPT EXISTS FILTER GLOB GROUP HAVING ILIKE IN
    INTERSECT IS LIKE LIMIT NOT OFFSET ON OR OVER ROLLUP ROW SELECT SETS SIMILAR SOME THEN TO UNION USING VALUES WHEN
    WHERE FETCH FIRST NEXT REGEXP MATCH COLLATE INTERVAL
"""
WORDS_BEFORE_PARENTHESIS: Final = frozenset(_BEFORE_PARENTHESIS.split())


# ---------------------------------------------------------------- items

SET_OPERATORS: Final = ("UNION", "INTERSECT", "EXCEPT")
_QUERY_STARTS: Final = ("SELECT", "WITH", "VALUES")
JOIN_WORDS: Final = ("NATURAL", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "OUTER", "JOIN")
AFTER_FROM: Final = ("WHERE", "GROUP", "HAVING", "WINDOW", "ORDER", "LIMIT", "OFFSET", "FETCH")
_COUNTS: Final = ("number", "placeholder", "mark")
_NO_ALIASES: Final = frozenset({*JOIN_WORDS, *AFTER_FROM, "ON", "USING", "AS", "TABLESAMPLE", "INDEXED", "NOT"})
WRITING_WORDS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "INTO"})
# Words that begin a list of tables, a query or a change. Where the reader does not expect them, the query is refused.
REFUSED_WORDS: Final = WRITING_WORDS | frozenset(
    {"FROM", "JOIN", "SELECT", "VALUES", "WITH", "TABLE", "FOR", "RETURNING", "LATERAL", "TABLESAMPLE", "OPERATOR"}
)
WRITING_HINT: Final = "database_write adds a row, database_update changes rows, database_delete removes them"


class SqlParenthesis(NamedTuple):
    """What stands between two parentheses."""

    items: list[SqlItem]
    start: int


SqlItem: TypeAlias = "SqlToken | SqlParenthesis"


def tree_of(tokens: Sequence[SqlToken]) -> list[SqlItem]:
    """Return the tokens with each pair of parentheses as one item."""
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
    """Return whether FROM belongs to IS [NOT] DISTINCT FROM."""
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
    """Return a table's name with its schema, the position after it, and its place in the text."""
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
    """Return the position after [NATURAL] [LEFT [OUTER] …] JOIN."""
    while word_of(items, position) in JOIN_WORDS and word_of(items, position) != "JOIN":
        position += 1
    return after_word(items, position, "JOIN")


def condition_end(items: Sequence[SqlItem], position: int) -> int:
    """Return where the condition of a join ends."""
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
    """Return whether a word after a table begins a clause. SQLite takes `window`, `offset` and `fetch` for aliases,
    too."""
    word, after = word_of(items, position), item_of(items, position + 1)
    if word == "WINDOW":
        return word_of(items, position + 2) == "AS" and isinstance(item_of(items, position + 3), SqlParenthesis)
    if word == "OFFSET":
        return isinstance(after, SqlToken) and after.kind in _COUNTS
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
