"""Texts of nodes with a mark at the place where a remark is expected."""

from __future__ import annotations

from lyra.vesper.check import Issue, check_text

__all__ = ["HEAD", "marked", "remarks", "remarks_at_mark"]

MARK = "«"
HEAD = """\
node_id: example_v1
type: function
intent: an example for one rule
metadata: {description: An example.}
testing: {property_tests: [{property: none}]}
"""
INPUTS = "inputs: {n: integer, d: {type: decimal, scale: 2}, s: string, b: boolean, t: timestamp, ns: array<integer>}\n"


def _whole(text: str) -> str:
    text = text.replace("$inputs\n", INPUTS)
    return text if _has_head(text) else HEAD + text


def _has_head(text: str) -> bool:
    return "node_id:" in text.partition("\n")[0] or not text.startswith(("inputs", "outputs", "types", "flow"))


def marked(text: str) -> tuple[str, tuple[int, int]]:
    """The text without its mark, and the place of the mark."""
    before, mark, after = text.partition(MARK)
    assert mark, "the text has no mark"
    return before + after, (before.count("\n") + 1, len(before) - before.rfind("\n"))


def remarks(text: str, *, strict: bool = False) -> list[Issue]:
    """The remarks on a node, with a head where the text has none."""
    return check_text(_whole(text), strict=strict)


def remarks_at_mark(text: str) -> tuple[list[Issue], tuple[int, int]]:
    clean, place = marked(_whole(text))
    return check_text(clean), place
