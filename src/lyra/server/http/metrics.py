"""The metrics of the kernel and its agents, in the text form of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts

__all__ = ["render_metrics"]

_MEDIA = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(parts: HttpParts) -> tuple[bytes, str]:
    """The text and its media type."""
    counts = parts.kernel.get_process_counts()
    lines = ["# HELP lyra_processes Processes by state.", "# TYPE lyra_processes gauge"]
    lines += [f'lyra_processes{{state="{state}"}} {count}' for state, count in counts.items()]
    return ("\n".join(lines) + "\n").encode(), _MEDIA
