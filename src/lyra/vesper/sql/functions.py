"""Functions that a query may call, and words that may stand before a parenthesis.

Only functions that compute from their arguments are listed: none of them reads a file, a table or a setting, waits,
opens a connection or changes anything. A query that calls another function is refused.
"""

from __future__ import annotations

from typing import Final

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
