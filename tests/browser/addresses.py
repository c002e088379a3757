"""The addresses of all pages of a stage: those of the table of pages, with something real in the place of each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from lyra.server.site import PAGES
from tests.browser.stage import Stage

__all__ = ["WORDS", "addresses"]

# What a page shows once the office has brought some work; pages that are not named need only a heading.
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "/": ("reviewers", "security"),
    "/processes": ("team", "reviewers", "security", "refunds"),
    "/processes/{pid}": ("security",),
    "/traces": ("style",),
    "/runs": ("change 1042",),
    "/runs/{pid}": ("change 1042",),
    "/inbox": ("Refund $120.00", "Approve"),
    "/pipelines": ("newsletter",),
    "/nodes": ("loyalty_points_v1", "shipping_quote_v1"),
    "/nodes/{id}": ("loyalty_points_v1",),
    "/costs": ("style", "$"),
    "/services": ("search", "mailer", "degraded"),
    "/chat": ("guide", "support"),
    "/chat/{agent}": ("guide",),
    "/settings": ("olga",),
}


def _pid(stage: Stage, name: str) -> str:
    rows = [process for process in stage.kernel.processes.values() if process.name == name]
    return next((process.pid for process in rows if process.alive), rows[-1].pid)


def _trace(stage: Stage) -> str:
    face: Any = stage.server._faces[0]
    trace_id: str = next(span.trace_id for _, span in face.app.parts.records.spans() if span.kind == "turn")
    return trace_id


# By the name in the path and the page: a value of the stage.
_VALUES: Final[dict[str, Callable[[Stage], str]]] = {
    "/processes": lambda stage: _pid(stage, "security"),
    "/runs": lambda stage: _pid(stage, "change 1042"),
    "/traces": _trace,
    "/nodes": lambda _stage: "loyalty_points_v1",
    "/chat": lambda _stage: "guide",
    "/pipelines": lambda _stage: "newsletter-1",
}


_QUERIES: Final = {"/costs": "?days=7&range=month"}  # other ranges have tables of two thousand cells


def _is_part(path: str) -> bool:
    """Whether it is no page of its own: the figures of the header, a table to download."""
    return path == "/figures" or path.endswith((".csv", ".svg", ".json"))


def addresses(stage: Stage) -> dict[str, str]:
    """The address of each page, by its path in the table."""
    pages = {}
    for endpoint in PAGES:
        if endpoint.group != "pages" or endpoint.method != "GET" or _is_part(endpoint.path):
            continue
        path = endpoint.path
        if endpoint.parameters:
            start = path[: path.index("/{")]
            assert start in _VALUES, f"give {start} a value of the stage in _VALUES of tests/browser/addresses.py"
            if len(endpoint.parameters) > 1 or not path.endswith("}"):
                continue
            path = f"{start}/{quote(_VALUES[start](stage), safe='')}"
        pages[endpoint.path] = path + _QUERIES.get(endpoint.path, "")
    return pages
