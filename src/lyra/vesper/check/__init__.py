"""What is wrong with a node, and the node in the typed IR. Start at `judge.check` and `judge.program_of`."""

from __future__ import annotations

from lyra.vesper.check.judge import check, check_text, has_errors, program_of
from lyra.vesper.loading import Issue, render_issue

__all__ = ["Issue", "check", "check_text", "has_errors", "program_of", "render_issue"]
