"""Log-in and log-out: a person shows a token once and is known by a cookie from then on (`http.logins`).

A page that is asked for without a login is answered with the form (`login_page`); a link with `?token=…` needs no form.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from lyra.core.limits import SERVER_LOGIN_S
from lyra.errors import Unauthenticated
from lyra.server.dashboard.html import Html, join, tag
from lyra.server.dashboard.layout import NAV, document, render_plain_nav
from lyra.server.http.endpoint import Endpoint, HttpCall, PageRequest, RawAnswer, to_root
from lyra.server.http.guard import LOG_OUT, check_same_origin
from lyra.server.http.logins import begin_login
from lyra.server.http.problems import HttpProblem
from lyra.server.identity import TOKEN_VARIABLE

_CROSS_SITE: Final = "cross-site"


def login_page(request: PageRequest, problem: str = "") -> RawAnswer:
    """Return the form for a token, in answer to a page that needs a login."""
    root = to_root(request.path)
    path = request.path.lstrip("/")
    target = path + (f"?{request.query}" if request.query and "token=" not in request.query else "")
    body = tag(
        "main",
        tag("h1", "Lyra"),
        tag("p", problem, class_="problem", role="alert") if problem else None,
        _form(root, target),
        tag(
            "p",
            "The operator of this server has the tokens. They are lines of its token file, whose place ",
            tag("code", "lyra serve"),
            " prints when it starts, or the value of the variable ",
            tag("code", TOKEN_VARIABLE),
            " in its environment. ",
            tag("code", "?token=TOKEN"),
            " at the end of this address logs in, too.",
            class_="note",
        ),
        id="main",
        class_="narrow",
    )
    # A browser keeps the cookie back when a page of another site leads here; one more step from this page sends it.
    again = request.headers.get("sec-fetch-site") == _CROSS_SITE and not problem
    head = tag("meta", http_equiv="refresh", content="0") if again else None
    return document(root, "Log in", body, status=401, headers={"www-authenticate": "Bearer"}, head=head)


def _form(root: str, target: str) -> Html:
    return tag(
        "form",
        tag("input", type="hidden", name="next", value=target),
        tag("label", "Token", for_="token"),
        tag(
            "input",
            id="token",
            name="token",
            type="password",
            required=True,
            autocomplete="current-password",
            autofocus=True,
            spellcheck="false",
        ),
        tag("button", "Log in", type="submit", class_="primary"),
        method="post",
        action=f"{root}login",
        class_="login",
    )


async def _log_in(call: HttpCall) -> RawAnswer:
    check_same_origin(call.headers)
    try:
        replaced = call.cookie.value(call.headers)
        login_id = begin_login(call.kernel, call.logins, call.form.get("token", ""), call.client, replaced)
    except Unauthenticated:
        request = PageRequest(call.raw_path, "", call.headers, has_login=True)
        return login_page(request, "The token is not known.")
    cookie = call.cookie.set_line(login_id, int(SERVER_LOGIN_S))
    location = to_root(call.raw_path) + _local_target(call.form.get("next", ""))
    return RawAnswer(b"", "text/plain", 303, {"location": location, "set-cookie": cookie})


def _local_target(target: str) -> str:
    """Return where to go after the login: a page of this site, never another host."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc or not target.isascii() or not target.isprintable() or "\\" in target:
        return ""
    return "" if target.startswith("login") else target.lstrip("/")


async def _log_out(call: HttpCall) -> RawAnswer:
    call.logins.end(call.cookie.value(call.headers))
    if call.kernel.core.remote is not None:
        await call.kernel.durable()  # a host that dies now has told the others
    headers = {"location": to_root(call.raw_path), "set-cookie": call.cookie.set_line("", 0)}
    return RawAnswer(b"", "text/plain", 303, headers)


ENDPOINTS: Final = (
    Endpoint("acts.login", "POST", "/login", "Log in with a token", _log_in, is_open=True),
    Endpoint(LOG_OUT, "POST", "/logout", "Log out", _log_out),
)


# What went wrong, as a page: the login for a stranger, else the status, the reason and a way back.


def problem_page(problem: HttpProblem, request: PageRequest) -> RawAnswer:
    """Return the page of a problem, with its status."""
    if problem.status == 401 and request.has_login:
        return login_page(request, "The token is not known." if "token=" in request.query else "")
    title = _title(problem.status)
    root = to_root(request.path)
    hint = "" if problem.status == 404 else problem.hint  # where nothing is, the lists say what there is
    body = join(
        tag("header", render_plain_nav(root), class_="site"),
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
    """Return the list that the page would be of, or the overview."""
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
