"""Lines above calls that say what they overlap with, from the plan of automatic parallelism.

`lyra.vega.plan` makes the plan; its `overlaps(module, source, load=…)` gives a line (from 1) and a sentence for every
call that may run beside others. Where there is no plan, or a program has mistakes, there is nothing to say.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lyra.errors import SourceError
from lyra.vega.lsp.analysis import Analysis

__all__ = ["overlaps"]


def overlaps(analysis: Analysis) -> list[tuple[int, str]]:
    """(line from 1, text) for every call that may run beside others, in order of place."""
    if analysis.parsed.problems:
        return []
    try:
        plan: Any = import_module("lyra.vega.plan")
    except ImportError:
        return []
    try:
        return sorted(plan.overlaps(analysis.module, analysis.source, load=analysis.load))
    except SourceError:  # what only the compiler sees
        return []
