"""What went wrong, as a page: the login for a stranger, else the status, the reason and a way back."""

from __future__ import annotations

from http import HTTPStatus

from lyra.server.dashboard.html import tag
from lyra.server.dashboard.layout import document
from lyra.server.dashboard.login import login_page
from lyra.server.http.endpoint import RawAnswer
from lyra.server.http.page_request import PageRequest, to_root
from lyra.server.http.problems import HttpProblem

__all__ = ["problem_page"]


def problem_page(problem: HttpProblem, request: PageRequest) -> RawAnswer:
    """The page of a problem, with its status."""
    if problem.status == 401 and request.has_login:
        return login_page(request, "The token is not known." if "token=" in request.query else "")
    title = _title(problem.status)
    root = to_root(request.path)
    body = tag(
        "main",
        tag("p", tag("a", "Lyra", href=root, class_="brand")),
        tag("h1", title),
        tag("p", problem.message, class_="problem"),
        tag("p", problem.hint, class_="note") if problem.hint else None,
        tag("p", tag("a", "Back to the overview", href=root)),
        id="main",
        class_="narrow",
        data_status=problem.status,
    )
    return document(root, title, body, status=problem.status, headers=problem.headers)


def _title(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
