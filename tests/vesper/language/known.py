"""Cases of the corpus that a path does not answer as it should, with the reason.

The table is exact: a case that is answered as expected must leave it. Keys are a file, a case and a path, `both`
for dual_verify.
"""

from __future__ import annotations

__all__ = ["KNOWN", "KNOWN_DIVERGENT", "known_cases"]

KNOWN: dict[tuple[str, str, str], str] = {}

# Files on whose generated inputs the paths differ.
KNOWN_DIVERGENT: dict[str, str] = {}


def known_cases(file: str, path: str) -> set[str]:
    return {case for name, case, on in KNOWN if (name, on) == (file, path)}
