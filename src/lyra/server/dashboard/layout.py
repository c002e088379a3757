"""The frame of every page: skip link, navigation, the header's figures, `<main>`, and the addresses of it all.

`page(call, title, …)` gives the whole answer. A region is a part that the page's script fetches again when an event of
its kinds happens: `region(call, "tree", ("process.created",), …)`. A request with the header `x-region` is answered
with that region alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from lyra.server.dashboard.assets import SHEET, asset_path
from lyra.server.dashboard.figures import HeaderFigures
from lyra.server.dashboard.figures_view import figures_bar
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.http.endpoint import HttpCall, RawAnswer
from lyra.server.http.logins import FORM_FIELD
from lyra.server.http.page_request import to_root
from lyra.server.http.problems import HttpRefusal

PAGE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "same-origin",  # browsers send `Origin: null` with a form under a stricter one
    "vary": "x-region, cookie",
}
_HTML: Final = "text/html; charset=utf-8"


class NavItem(NamedTuple):
    """A link of the navigation: the path of its page, its label, and the key that opens it after `g`."""

    path: str
    label: str
    key: str


NAV: Final = (
    NavItem("/", "Overview", "o"),
    NavItem("/processes", "Processes", "p"),
    NavItem("/traces", "Traces", "t"),
    NavItem("/runs", "Runs", "r"),
    NavItem("/inbox", "Inbox", "i"),
    NavItem("/pipelines", "Pipelines", "l"),
    NavItem("/nodes", "Nodes", "n"),
    NavItem("/costs", "Costs", "c"),
    NavItem("/services", "Services", "s"),
    NavItem("/chat", "Chat", "h"),
    NavItem("/settings", "Settings", "e"),
)


# ---------------------------------------------------------------- addresses
def link(call: HttpCall, *segments: str, query: Mapping[str, Any] | None = None) -> str:
    """The relative address of a path of the site: `link(call, "processes", pid)`. Each segment is escaped; the first
    may have slashes (`"acts/logout"`)."""
    first = segments[0].strip("/") if segments else ""
    path = "/".join([quote(first, safe="/"), *(quote(segment, safe="") for segment in segments[1:])])
    rest = urlencode({name: value for name, value in (query or {}).items() if value not in (None, "")})
    return to_root(call.raw_path) + path + (f"?{rest}" if rest else "")


def _current_path(call: HttpCall) -> str:
    return "/" + call.endpoint.path.strip("/").partition("/")[0]


# ---------------------------------------------------------------- parts of a page
def region(
    call: HttpCall,
    name: str,
    events: Iterable[str],
    *children: Child,
    source: str | None = None,
    every_ms: int = 150,
    element: str = "section",
    **attributes: Any,
) -> Html:
    """A part that is fetched again when an event of these kinds happens, at most every `every_ms`; from `source`, an
    address of its own, or from the address of the page. With `data_refresh` it is fetched every so many milliseconds as
    well."""
    del call
    part = tag(
        element,
        *children,
        id=name,
        data_region=True,
        data_events=",".join(events),
        data_source=source,
        data_every=every_ms,
        **attributes,
    )
    return join(Html(f"<!--region {_checked_name(name)}-->"), part, Html(f"<!--end {name}-->"))


def _checked_name(name: str) -> str:
    assert name.replace("-", "").replace("_", "").isalnum(), name
    return name


def act_form(call: HttpCall, action: str, *children: Child, why_not: str = "", **attributes: Any) -> Html:
    """A form that changes something. For a person who may not, its buttons and fields are disabled, and the reason is
    shown on hover; `why_not` is another reason to disable it."""
    reason = why_not or role_refusal(call)
    field = tag("input", type="hidden", name=FORM_FIELD, value=call.form_token)
    body = tag("fieldset", *children, disabled=bool(reason), title=reason or None)
    return tag("form", field, body, method="post", action=action, **attributes)


def role_refusal(call: HttpCall) -> str:
    """Why this person may change nothing; "" where they may."""
    return "" if call.caller.may_change else f"The role {call.caller.role} changes nothing"


# ---------------------------------------------------------------- whole pages
def page(
    call: HttpCall,
    title: str,
    *main: Child,
    scripts: Iterable[str] = (),
    status: int = 200,
    wide: bool = False,
    beside: str = "",
    lead: str = "",
) -> RawAnswer:
    """A page, or the one region of it that the request asks for. `scripts` are names of `static/`, `beside` is a quiet
    word in its heading, such as an id; `lead` says below it what is shown here and what can be done."""
    wanted = call.headers.get("x-region", "")
    if wanted:
        return RawAnswer(_region_of(join(*main), wanted).encode(), _HTML, 200, PAGE_HEADERS)
    bar = figures_region(call)
    quiet = [" ", tag("span", beside, class_="beside")] if beside else None
    heading = [tag("h1", title, quiet), tag("p", lead, class_="lead") if lead else None]
    body = join(
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", _nav(call), bar, class_="site"),
        tag("main", heading, *main, id="main", class_="wide" if wide else None, tabindex="-1"),
    )
    data: dict[str, Any] = {
        "data_form": call.form_token,
        "data_person": call.caller.name,
        "data_role": call.caller.role,
        "data_now": f"{call.now:.3f}",
    }
    return document(to_root(call.raw_path), title, body, scripts=("site.js", *scripts), status=status, **data)


def see_other(call: HttpCall, *segments: str, query: Mapping[str, Any] | None = None) -> RawAnswer:
    """The answer to a form: the browser goes to that page."""
    return RawAnswer(b"", "text/plain", 303, {"location": link(call, *segments, query=query)})


def figures_region(call: HttpCall) -> Html:
    """The figures of the header, which every page has."""
    figures = call.parts.shared(HeaderFigures).read(call.caller)
    return region(
        call,
        "figures",
        FIGURES_EVENTS,
        figures_bar(figures),
        source=link(call, "figures"),
        every_ms=1_000,
        data_refresh=15_000,
        element="div",
        class_="figures",
        aria_label="Figures",
        role="group",
    )


FIGURES_EVENTS: Final = (
    "process.created",
    "process.terminated",
    "model.called",
    "interrupt.created",
    "interrupt.resolved",
    "interrupt.expired",
    "interrupt.cancelled",
)


def document(
    root: str,
    title: str,
    body: Html,
    *,
    scripts: Iterable[str] = (),
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    head: Child = None,
    **data: Any,
) -> RawAnswer:
    """An HTML document with the style sheets of the site. `root` leads from the page to the root of the site."""
    modules = [tag("script", type="module", src=root + asset_path(name)) for name in dict.fromkeys(scripts)]
    html = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("title", f"{title} · Lyra"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("link", rel="icon", href=root + asset_path("icon.svg"), type="image/svg+xml"),
            tag("link", rel="stylesheet", href=root + asset_path(SHEET)),
            tag("script", src=root + asset_path("theme.js")),  # before the first paint: no flash of the other theme
            modules,
            head,
        ),
        tag("body", body, data_root=root, **data),
        lang="en",
    )
    content = f"<!doctype html>{html}".encode("utf-8", "replace")
    return RawAnswer(content, _HTML, status, {**PAGE_HEADERS, **(headers or {})})


def plain_nav(root: str) -> Html:
    """The navigation of a page of which it is not known who looks at it."""
    home = tag("a", "Lyra", href=root, class_="brand")
    links = [tag("a", item.label, href=root + item.path.lstrip("/")) for item in NAV]
    return tag("nav", home, tag("div", links, class_="links"), aria_label="Pages")


def _nav(call: HttpCall) -> Html:
    here = _current_path(call)
    known = {endpoint.path for endpoint in call.parts.endpoints if endpoint.group == "pages"}
    waiting = call.parts.shared(HeaderFigures).questions(call.caller)
    links = [
        tag(
            "a",
            item.label,
            # Its room is there without a question, too: one that comes moves no link.
            join(" ", tag("span", waiting or None, class_="count")) if item.path == "/inbox" else None,
            href=link(call, item.path),
            aria_current="page" if item.path == here else None,
            data_key=item.key,
        )
        for item in NAV
        if item.path in known
    ]
    home = tag("a", "Lyra", href=link(call), class_="brand")
    return tag("nav", home, tag("div", links, class_="links"), aria_label="Pages")


def _region_of(main: Html, name: str) -> Html:
    """One region of a page; a text of the page cannot look like a mark of a region, because it is escaped."""
    if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 100:
        raise HttpRefusal(404, "there is no such region")
    start, end = f"<!--region {name}-->", f"<!--end {name}-->"
    first, last = main.find(start), main.find(end)
    if first < 0 or last < first:
        raise HttpRefusal(404, "there is no such region")
    return Html(main[first + len(start) : last])
