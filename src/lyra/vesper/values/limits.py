"""Every bound of Vesper, with its unit last in its name and its reason beside it.

What a node may declare (time, memory) has its default here and its highest value, too. Nothing here imports anything.
"""

from __future__ import annotations

from typing import Final

NODE_FILE_BYTES_MAX: Final = 1024 * 1024  # one .vsp file
NUMBER_DIGITS_MAX: Final = 10_000  # digits of a number in a file, an input or a result
NUMBER_EXPONENT_MAX: Final = 10_000  # of a decimal, either way

NAME_CHARS_MAX: Final = 128  # a node id, a step's or a field's name

EXPRESSION_CHARS_MAX: Final = 4_096
EXPRESSION_NESTING_MAX: Final = 64  # parentheses, lists, calls and prefixes inside one another
EXPRESSION_DEPTH_MAX: Final = 160  # of the tree: `a + a + …` is deep without being nested
IR_DEPTH_MAX: Final = 240  # of an expression with the values of its parameters in it
TEMPLATE_CHARS_MAX: Final = 65_536
TEMPLATE_PLACEHOLDERS_MAX: Final = 256
SQL_CHARS_MAX: Final = 16_384  # a query
SQL_NESTING_MAX: Final = 32  # parentheses of a query inside each other
PATTERN_SIZE_MAX: Final = 10_000  # instructions of a regular expression

INPUTS_MAX: Final = 256
FIELDS_MAX: Final = 256  # of a custom type, or of an answer
STEPS_MAX: Final = 1_000  # of a node, inner ones counted
STEP_DEPTH_MAX: Final = 16  # steps inside one another
CONTRACTS_MAX: Final = 256
TERMS_MAX: Final = 50_000  # parts of all expressions of a node
TYPE_FIELDS_MAX: Final = 2_000  # of a custom type, with the fields of the types inside it
TYPE_DEPTH_MAX: Final = 16  # array<array<…>>, and custom types inside custom types
ISSUES_MAX: Final = 200  # remarks on one file; later ones are counted, not listed

TIME_S_DEFAULT: Final = 30.0
TIME_S_MAX: Final = 24 * 3600.0
MEMORY_MB_DEFAULT: Final = 512
MEMORY_MB_MAX: Final = 1024 * 1024
ITERATIONS_DEFAULT: Final = 10_000  # of a loop that says nothing else
ITERATIONS_MAX: Final = 10_000_000
ATTEMPTS_MAX: Final = 100  # of a call, the first included
RETRY_DELAY_S_MAX: Final = 3600.0  # between two attempts; the time of the execution bounds it, too
SCALE_MAX: Final = 1_000  # digits after the point that a type or a step may ask for

DECIMAL_DIGITS_MAX: Final = NUMBER_DIGITS_MAX  # of a decimal's coefficient
DECIMAL_EXPONENT_MAX: Final = NUMBER_EXPONENT_MAX  # of a decimal's exponent, both ways
QUOTIENT_DIGITS: Final = 28  # of a quotient that is not exact
TEXT_MAX: Final = 64 * 1024 * 1024  # characters of a text that a step builds
ELEMENT_BYTES: Final = 64  # what an element of an array counts for, besides the characters of a text
VALUE_DEPTH_MAX: Final = 64  # lists and maps inside each other in an input
FORMAT_CHARS_MAX: Final = 1_000  # of a format of times
PATTERN_STEPS_MAX: Final = 5_000_000  # of one match

SAMPLES_MAX: Final = 10_000_000  # inputs of one differential test
DRAWN_TEXT_CHARS_MAX: Final = 4_096  # of a text that tests draw for a pattern

HTTP_BODY_BYTES_MAX: Final = 1024 * 1024  # of a request to an http_handler
HTTP_QUERY_FIELDS_MAX: Final = 256

RESULTS_MAX: Final = 10_000
RESULT_BYTES_MAX: Final = 256 * 1024  # a larger one is not kept
RESULTS_BYTES_MAX: Final = 64 * 1024 * 1024  # of all, in memory
RESULTS_TIME_S: Final = 3600.0  # a result is given again for so long
REDIS_TIMEOUT_S: Final = 1.0  # one exchange with Redis, however slowly its bytes arrive
REDIS_PAUSE_S: Final = 5.0  # after a failure, before Redis is asked again

SENSITIVE_VALUES_MAX: Final = 1_000  # values of one execution that texts are searched for; with more, all is hidden
AUDIT_ROWS_KEPT: Final = 1_000  # in memory and in snapshots; the journal has all
AUDIT_VALUE_CHARS_MAX: Final = 2_000  # of one input or output in an audit row
TRACES_KEPT: Final = 200  # executions that can be replayed
TRACE_BYTES_MAX: Final = 256 * 1024  # of one stored execution; a larger one is not stored
TRACES_BYTES_MAX: Final = 8 * 1024 * 1024  # of all; the oldest go first
TRACE_STEPS_MAX: Final = 10_000  # steps that a replay shows
