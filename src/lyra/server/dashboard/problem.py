"""What went wrong, as a page: the login for a stranger, else the status, the reason and a way back."""

from __future__ import annotations

from http import HTTPStatus

from lyra.server.dashboard.html import Html, join, tag
from lyra.server.dashboard.layout import NAV, document, plain_nav
from lyra.server.dashboard.login import login_page
from lyra.server.http.endpoint import RawAnswer
from lyra.server.http.page_request import PageRequest, to_root
from lyra.server.http.problems import HttpProblem


def problem_page(problem: HttpProblem, request: PageRequest) -> RawAnswer:
    """The page of a problem, with its status."""
    if problem.status == 401 and request.has_login:
        return login_page(request, "The token is not known." if "token=" in request.query else "")
    title = _title(problem.status)
    root = to_root(request.path)
    hint = "" if problem.status == 404 else problem.hint  # where nothing is, the lists say what there is
    body = join(
        tag("header", plain_nav(root), class_="site"),
        tag(
            "main",
            tag("h1", title),
            tag("p", problem.message, class_="problem"),
            tag("p", hint, class_="note") if hint else None,
            tag("p", _way_back(root, request.path)),
            id="main",
            class_="narrow",
            data_status=problem.status,
        ),
    )
    return document(root, title, body, status=problem.status, headers=problem.headers)


def _way_back(root: str, path: str) -> Html:
    """The list that the page would be of, or the overview."""
    first = "/" + path.strip("/").partition("/")[0]
    listed = next((item for item in NAV if item.path == first != path), None)
    if listed is None:
        return tag("a", "Back to the overview", href=root)
    return tag("a", f"{listed.label}: what there is", href=root + listed.path.lstrip("/"))


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
