"""The page of HTTP is made from the table of routes and kept current."""

from __future__ import annotations

from pathlib import Path

from lyra.server.http.routes import ENDPOINTS
from verify.reference.pages import pages

KEPT = Path(__file__).parents[3] / "docs/reference/http.md"


def test_the_page_has_every_request_and_is_the_kept_one() -> None:
    page = pages()["http.md"]
    for endpoint in ENDPOINTS:
        assert f"| `{endpoint.method} {endpoint.path}` | {endpoint.summary}." in page
    assert page == KEPT.read_text(encoding="utf-8")
