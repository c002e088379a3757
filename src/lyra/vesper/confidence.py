"""The confidence that comparisons of two paths give: see `evidence.confidence`, which computes it."""

from __future__ import annotations

from lyra.vesper.evidence.confidence import lower_bound

__all__ = ["lower_bound"]
