"""Cases of the corpus that a path does not answer as it should, with the reason.

The table is exact: a case that is answered as expected must leave it. Keys are a file, a case and a path, `both`
for dual_verify.
"""

from __future__ import annotations

__all__ = ["KNOWN", "KNOWN_DIVERGENT", "known_cases"]

_EVERYWHERE = ("python", "direct", "reference", "both")


def _on(paths: tuple[str, ...], file: str, case: str, reason: str) -> dict[tuple[str, str, str], str]:
    return {(file, case, path): reason for path in paths}


KNOWN: dict[tuple[str, str, str], str] = {
    **_on(("reference",), "comparisons/numbers", "very_large", "the reference refuses an exponent of 10 000"),
    **_on(
        ("python", "direct", "reference"),
        "decimals/keep_their_scale",
        "too_small_an_exponent",
        "an exponent below -10 000 is taken",
    ),
    **_on(
        _EVERYWHERE,
        "database/invariant_after_a_write",
        "fails_after_the_write",
        "an invariant does not see a variable that is named like an output before the end",
    ),
}

# Files on whose generated inputs the paths differ.
KNOWN_DIVERGENT: dict[str, str] = {}


def known_cases(file: str, path: str) -> set[str]:
    return {case for name, case, on in KNOWN if (name, on) == (file, path)}
