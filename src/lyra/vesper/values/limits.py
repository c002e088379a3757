"""Limits of Vesper, all in one place: sizes, depths and counts beyond which a node or a value is refused."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DECIMAL_DIGITS_MAX",
    "DECIMAL_EXPONENT_MAX",
    "PATTERN_INSTRUCTIONS_MAX",
    "PATTERN_STEPS_MAX",
    "QUOTIENT_DIGITS",
    "TEXT_MAX",
    "VALUE_DEPTH_MAX",
]

DECIMAL_DIGITS_MAX: Final = 10_000  # of a decimal's coefficient
DECIMAL_EXPONENT_MAX: Final = 10_000  # of a decimal's exponent, both ways
QUOTIENT_DIGITS: Final = 28  # of a quotient that is not exact
TEXT_MAX: Final = 64 * 1024 * 1024  # characters of a text that a step builds
VALUE_DEPTH_MAX: Final = 64  # lists and maps inside each other in an input
PATTERN_INSTRUCTIONS_MAX: Final = 10_000  # of a regular expression
PATTERN_STEPS_MAX: Final = 5_000_000  # of one match
