"""Requests of browsers: whether a problem is shown as a page, and the addresses of pages.

Addresses are relative to the page that names them, so that they hold wherever the application is mounted, also behind a
proxy that removes a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.server.http.endpoint import RawAnswer, RouteMatch

if TYPE_CHECKING:
    from lyra.server.http.problems import HttpProblem


_DATA_PATHS: Final = ("/api/", "/v1/", "/assets/", "/openapi.json", "/metrics", "/health", "/.well-known/")


class PageRequest(NamedTuple):
    """A request whose answer a browser shows."""

    path: str  # below the place where the application is mounted, as it was sent
    query: str
    headers: Mapping[str, str]
    has_login: bool  # whether a token can be shown here


ProblemPage = Callable[["HttpProblem", PageRequest], RawAnswer]


def wants_page(match: RouteMatch | None, method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Whether a problem is shown as a page: of a page or its form, or at a path without an endpoint that a browser
    opened."""
    endpoints = () if match is None else tuple(match.methods.values())
    if endpoints:
        return any(endpoint.is_for_people for endpoint in endpoints)
    return method == "GET" and "text/html" in headers.get("accept", "") and not path.startswith(_DATA_PATHS)


def query_text(scope: Any) -> str:
    text: str = scope["query_string"].decode("latin-1")
    return text


def to_root(path: str) -> str:
    """From a page to the root of the application, as the beginning of a relative address."""
    return "../" * max(0, path.count("/") - 1) or "./"


def same_page(path: str) -> str:
    """The relative address of a page from itself. It never names another host."""
    last = path.rpartition("/")[2]
    return f"./{last}"


def with_slash(scope: Any) -> str:
    """The relative address of the root of an application that was asked for without a slash at the end, from which
    relative addresses would lead elsewhere."""
    last = scope.get("root_path", "").rpartition("/")[2]
    return f"./{last}/" + (f"?{query_text(scope)}" if scope["query_string"] else "")
