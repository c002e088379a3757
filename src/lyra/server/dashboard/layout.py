"""The frame of every page: skip link, navigation, the header's figures, `<main>`, and the addresses of it all.

`page(call, title, …)` gives the whole answer. A region is a part that the page's script fetches again when an event of
its kinds happens: `region(call, "tree", ("process.created",), …)`. A request with the header `x-region` is answered
with that region alone.

The header's figures are what is alive, what waits, what failed, what it costs today and how long models take. The files
that pages load (style sheets, scripts and the icon of `static/`) have one address for one content each.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from lyra.core.event import Event, ModelCalled, is_failed_end
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.words import duration, empty, money
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, to_root
from lyra.server.http.logins import FORM_FIELD
from lyra.server.http.problems import HttpRefusal
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_MINUTE_S: Final = 60.0
_HOURS: Final = 24
_FAILURES_KEPT: Final = 10_000
_CALLS_KEPT: Final = 1_000
_OWNERS_KEPT: Final = 10_000
_LOOKED_AT_MAX: Final = 64
_MISSING_MS: Final = 3_000  # between two looks whether shards answer
_HANDED_ON_S: Final = 5.0  # a process that fails with the fault of its child does so soon after it


class FiguresNow(NamedTuple):
    """The figures at one moment."""

    alive: int
    waiting: int  # for a person
    failed_per_minute: int
    spent_micro_usd: int  # today, by UTC
    limit_micro_usd: int | None  # of the kernel's budget, where it has one
    left_micro_usd: int | None  # of that budget, which also counts earlier days
    hours_micro_usd: tuple[int, ...]  # of today, up to this hour
    p95_s: float | None


class CountedFailure(NamedTuple):
    """A process that failed: when, whose it was, which process had started it, and why."""

    time: float
    owner: str
    parent: str
    why: str


class HeaderFigures:
    """See the module."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._records = parts.records
        self._failures: deque[CountedFailure] = deque(maxlen=_FAILURES_KEPT)
        self._calls: deque[tuple[str, float]] = deque(maxlen=_CALLS_KEPT)  # user, seconds
        self._hours: dict[str, list[int]] = {}  # micro-dollars of each hour of the day, by user
        self._day = ""
        self._asked_past = False
        self._kernel.on_event(self._hear, kinds=("process.terminated", "model.called"))

    def _hear(self, event: Event) -> None:
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        if event.kind == "process.terminated":
            if is_failed_end(event.data):
                self._count_failure(event, owner)
            return
        called = ModelCalled.from_data(event.data)
        self._calls.append((owner, called.latency_ms / 1000))
        self._begin_day(_day(event.time))
        self._count_spend(event.time, owner, called)

    def _count_failure(self, event: Event, owner: str) -> None:
        process = self._kernel.processes.get(event.pid)
        shown_as = event.pid if process is None else process.known_as
        parent = None if process is None else process.parent
        above = "" if parent is None else parent.known_as
        error = event.data.get("error")
        why = str(error.get("message") if isinstance(error, Mapping) else error or event.data.get("reason"))
        for failure in islice(reversed(self._failures), _LOOKED_AT_MAX):
            if event.time - failure.time > _HANDED_ON_S:
                break
            if failure.parent == shown_as and failure.why == why:
                self._failures.append(failure._replace(parent=above))  # so that one above hands it on, too
                self._failures.remove(failure)
                return
        self._failures.append(CountedFailure(event.time, owner, above, why))

    def _count_spend(self, time: float, owner: str, called: ModelCalled) -> None:
        moment = datetime.fromtimestamp(time, UTC)
        if owner not in self._hours and len(self._hours) >= _OWNERS_KEPT:
            owner = ""
        hours = self._hours.setdefault(owner, [0] * _HOURS)
        hours[moment.hour] += called.micro_usd

    def _begin_day(self, day: str) -> None:
        if day != self._day:
            self._day = day
            self._hours.clear()

    async def _load_past(self) -> None:
        """Add the calls of today from before the server began."""
        await self._records.load_past()
        for owner, span in self._records.past_spans():
            if span.kind == "model" and _day(span.time) >= self._day:  # the clock may have been ahead
                self._count_spend(min(span.time, self._kernel.core.now()), owner, span.model_call)

    def read(self, caller: Caller) -> FiguresNow:
        """Return the figures that a caller may see."""
        now = self._kernel.core.now()
        today = datetime.fromtimestamp(now, UTC)
        self._begin_day(_day(now))
        if not self._asked_past:
            self._asked_past = True
            self._kernel.tasks.start(self._load_past(), name="lyra-costs-past")
        hours = [0] * _HOURS
        for owner, sums in self._hours.items():
            if caller.owns(owner):
                hours = [total + spent for total, spent in zip(hours, sums, strict=True)]
        return FiguresNow(
            alive=self._alive(caller),
            waiting=self.questions(caller),
            failed_per_minute=sum(
                1 for failure in self._failures if now - failure.time < _MINUTE_S and caller.owns(failure.owner)
            ),
            spent_micro_usd=self._sum_spent(caller, _day(now)),
            limit_micro_usd=_amount_figures(self._kernel.budget.limit("usd")) if caller.is_operator else None,
            left_micro_usd=_amount_figures(self._kernel.budget.remaining("usd")) if caller.is_operator else None,
            hours_micro_usd=tuple(hours[: today.hour + 1]),
            p95_s=_p95([seconds for owner, seconds in self._calls if caller.owns(owner)]),
        )

    def latencies(self, caller: Caller) -> list[float]:
        """Return the seconds of the last calls of models that a caller may see."""
        return [round(seconds, 4) for owner, seconds in self._calls if caller.owns(owner)]

    def questions(self, caller: Caller) -> int:
        """Return how many questions wait for this person."""
        kernel = self._kernel
        return sum(
            1
            for interrupt in kernel.interrupts.list_interrupts(None, status="pending")
            if caller.is_operator or caller.owns(interrupt.user_id or owner_if_known(kernel, interrupt.pid))
        )

    def _alive(self, caller: Caller) -> int:
        kernel = self._kernel
        if caller.is_operator:
            return kernel.live
        return sum(1 for row in kernel.processes.values() if row.alive and caller.owns(owner_if_known(kernel, row.pid)))

    def _sum_spent(self, caller: Caller, day: str) -> int:
        return sum(row.cost_micro_usd for row in self._records.sums() if row.day >= day and caller.owns(row.owner))


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def _amount_figures(money: Any) -> int | None:
    return None if money is None else int(money)


def join_figures(told: Sequence[tuple[FiguresNow, Sequence[float]]]) -> FiguresNow:
    """Return the figures of several shards as one, from those of each and the latencies of its last calls."""
    figures = [now for now, _ in told]
    limits = [now.limit_micro_usd for now in figures]
    hours = max((len(now.hours_micro_usd) for now in figures), default=0)
    known = None not in limits
    return FiguresNow(
        alive=sum(now.alive for now in figures),
        waiting=sum(now.waiting for now in figures),
        failed_per_minute=sum(now.failed_per_minute for now in figures),
        spent_micro_usd=sum(now.spent_micro_usd for now in figures),
        limit_micro_usd=sum(limit or 0 for limit in limits) if known else None,
        left_micro_usd=sum(now.left_micro_usd or 0 for now in figures) if known else None,
        hours_micro_usd=tuple(
            sum(now.hours_micro_usd[hour] for now in figures if hour < len(now.hours_micro_usd))
            for hour in range(hours)
        ),
        p95_s=_p95([seconds for _, latencies in told for seconds in latencies]),
    )


def _p95(seconds: list[float]) -> float | None:
    return sorted(seconds)[max(0, -(-len(seconds) * 95 // 100) - 1)] if seconds else None


_FOLDER: Final = Path(__file__).parent / "static"
_MEDIA: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FIRST_SHEETS: Final = ("tokens.css", "base.css")
SHEET: Final = "all.css"  # every style sheet in one file: a page waits for one request, not for many
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class AssetSet(NamedTuple):
    """The files by name, and the hash of them all."""

    digest: str
    files: Mapping[str, tuple[str, bytes]]


@cache
def _assets() -> AssetSet:
    files = {
        path.name: (_MEDIA[path.suffix], path.read_bytes())
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in _MEDIA
    }
    files[SHEET] = (_MEDIA[".css"], b"\n".join(files[name][1] for name in _sheet_order(files)))
    total = hashlib.sha256()
    for name, (_, content) in files.items():
        total.update(f"{name} {len(content)}\n".encode())
        total.update(content)
    return AssetSet(total.hexdigest()[:16], files)


def asset_path(name: str) -> str:
    """Return the path of a file from the root of the site; KeyError for one that does not exist."""
    assets = _assets()
    assets.files[name]
    return f"assets/{assets.digest}/{name}"


def _sheet_order(files: Mapping[str, object]) -> list[str]:
    """All style sheets: the tokens and the base first."""
    return [*_FIRST_SHEETS, *(name for name in files if name.endswith(".css") and name not in _FIRST_SHEETS)]


async def _asset(call: HttpCall) -> RawAnswer:
    assets = _assets()
    file = assets.files.get(call.path["name"])
    if file is None or call.path["digest"] != assets.digest:
        raise HttpRefusal(404, "there is no such file", hint="load the page again")
    return RawAnswer(file[1], file[0], 200, {"cache-control": _FOR_EVER})


ENDPOINTS: Final = (
    Endpoint(
        "assets.get",
        "GET",
        "/assets/{digest}/{name}",
        "A style sheet, a script or the icon of the pages",
        _asset,
        is_open=True,
    ),
)


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


# Of a cluster only, beside the overview.
CLUSTER: Final = NavItem("/cluster", "Cluster", "u")


def link(call: HttpCall, *segments: str, query: Mapping[str, Any] | None = None) -> str:
    """Return the relative address of a path of the site: `link(call, "processes", pid)`. Each segment is escaped; the
    first may have slashes (`"acts/logout"`)."""
    first = segments[0].strip("/") if segments else ""
    path = "/".join([quote(first, safe="/"), *(quote(segment, safe="") for segment in segments[1:])])
    rest = urlencode({name: value for name, value in (query or {}).items() if value not in (None, "")})
    is_elsewhere = call.shard and len(segments) > 1 and "/" in segments[1]  # the address of a process of another shard
    root = to_whole(call) if is_elsewhere else to_root(call.raw_path)
    return root + path + (f"?{rest}" if rest else "")


def to_whole(call: HttpCall) -> str:
    """From a page to the root of the pages of all shards; of a server without shards, to its own root."""
    return to_root(call.raw_path) + ("../../" if call.shard else "")


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
    """Return a part that is fetched again when an event of these kinds happens, at most every `every_ms`; from
    `source`, an address of its own, or from the address of the page. With `data_refresh` it is fetched every so many
    milliseconds as well."""
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
    assert name.replace("-", "").replace("_", "").isalnum(), name
    return join(Html(f"<!--region {name}-->"), part, Html(f"<!--end {name}-->"))


def act_form(call: HttpCall, action: str, *children: Child, why_not: str = "", **attributes: Any) -> Html:
    """Return a form that changes something. For a person who may not, its buttons and fields are disabled, and the
    reason is shown on hover; `why_not` is another reason to disable it."""
    reason = why_not or role_refusal(call)
    field = tag("input", type="hidden", name=FORM_FIELD, value=call.form_token)
    body = tag("fieldset", *children, disabled=bool(reason), title=reason or None)
    return tag("form", field, body, method="post", action=action, **attributes)


def role_refusal(call: HttpCall) -> str:
    """Return why this person may change nothing; "" where they may."""
    return "" if call.caller.may_change else f"The role {call.caller.role} changes nothing"


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
    """Return a page, or the one region of it that the request asks for. `scripts` are names of `static/`, `beside` is a
    quiet word in its heading, such as an id; `lead` says below it what is shown here and what can be done."""
    wanted = call.headers.get("x-region", "")
    if wanted:
        return RawAnswer(_region_of(join(*main), wanted).encode(), _HTML, 200, PAGE_HEADERS)
    bar = figures_region(call)
    quiet = [" ", tag("span", beside, class_="beside")] if beside else None
    heading = [tag("h1", title, quiet), tag("p", lead, class_="lead") if lead else None]
    body = join(
        tag("a", "Skip to content", href="#main", class_="skip"),
        tag("header", _nav(call), bar, class_="site"),
        tag("main", heading, missing_region(call), *main, id="main", class_="wide" if wide else None, tabindex="-1"),
    )
    data: dict[str, Any] = {
        "data_form": call.form_token,
        "data_person": call.caller.name,
        "data_role": call.caller.role,
        "data_now": f"{call.now:.3f}",
    }
    return document(to_root(call.raw_path), title, body, scripts=("site.js", *scripts), status=status, **data)


def see_other(call: HttpCall, *segments: str, query: Mapping[str, Any] | None = None) -> RawAnswer:
    """Return the answer to a form: the browser goes to that page."""
    return RawAnswer(b"", "text/plain", 303, {"location": link(call, *segments, query=query)})


def figures_region(call: HttpCall) -> Html:
    """Return the figures of the header, which every page has."""
    figures = call.parts.get_shared(HeaderFigures).read(call.caller) if call.gathered is None else call.gathered.figures
    return region(
        call,
        "figures",
        FIGURES_EVENTS,
        tag("span", f"shard {call.shard}", class_="figure") if call.shard else None,
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
    """Return an HTML document with the style sheets of the site. `root` leads from the page to the root of the site."""
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


def render_plain_nav(root: str) -> Html:
    """Return the navigation of a page of which it is not known who looks at it."""
    home = tag("a", "Lyra", href=root, class_="brand")
    links = [tag("a", item.label, href=root + item.path.lstrip("/")) for item in NAV]
    return tag("nav", home, tag("div", links, class_="links"), aria_label="Pages")


def _nav(call: HttpCall) -> Html:
    here = "/" + call.endpoint.path.strip("/").partition("/")[0]
    known = {endpoint.path for endpoint in call.parts.endpoints if endpoint.group == "pages"}
    figures = call.gathered and call.gathered.figures
    waiting = figures.waiting if figures else call.parts.get_shared(HeaderFigures).questions(call.caller)
    root = to_whole(call)
    has_cluster = call.kernel.core.remote is not None and call.caller.is_operator
    items = (NAV[0], CLUSTER, *NAV[1:]) if has_cluster else NAV
    links = [
        tag(
            "a",
            item.label,
            # Its room is there without a question, too: one that comes moves no link.
            join(" ", tag("span", waiting or None, class_="count"))
            if item.path == "/inbox" and not call.shard
            else None,
            href=root + item.path.lstrip("/"),
            aria_current="page" if item.path == here else None,
            data_key=item.key,
        )
        for item in items
        if item.path in known or call.shard
    ]
    home = tag("a", "Lyra", href=root, class_="brand")
    of = tag("a", call.shard, href=link(call), class_="shard", title="The pages of this shard") if call.shard else None
    return tag("nav", home, of, tag("div", links, class_="links"), aria_label="Pages")


def missing_region(call: HttpCall) -> Html | None:
    """Return the place for a sentence about the shards of which a page of all shards shows nothing."""
    if call.parts.whole is None:
        return None
    note = _missing_note(call, () if call.gathered is None else call.gathered.missing)
    source = link(call, "figures")
    return region(call, "missing", (), note, source=source, element="div", data_refresh=_MISSING_MS)


def _missing_note(call: HttpCall, missing: Sequence[str]) -> Html | None:
    if not missing:
        return None
    named = missing[0] if len(missing) == 1 else f"{', '.join(missing[:-1])} and {missing[-1]}"
    words = f"shard {named} does not answer" if len(missing) == 1 else f"shards {named} do not answer"
    why = [" (", tag("a", "why", href=to_whole(call) + "cluster"), ")"] if call.caller.is_operator else None
    return tag("p", f"Not all is shown: {words} at the moment", why, ".", class_="problem", role="status")


def _region_of(main: Html, name: str) -> Html:
    """One region of a page; a text of the page cannot look like a mark of a region, because it is escaped."""
    if not name.replace("-", "").replace("_", "").isalnum() or len(name) > 100:
        raise HttpRefusal(404, "there is no such region")
    start, end = f"<!--region {name}-->", f"<!--end {name}-->"
    first, last = main.find(start), main.find(end)
    if first < 0 or last < first:
        raise HttpRefusal(404, "there is no such region")
    return Html(main[first + len(start) : last])


# How the figures of the header look, and the small picture of the spend of today.

_WIDTH: Final = 72
_HEIGHT: Final = 16
# The widest form of each value, in digits of one width.
_WIDEST: Final = {"alive": "0000", "waiting": "000", "failed": "000", "spend": "$000.00", "p95": "000 ms"}
_CENT: Final = 10_000
_THOUSAND_USD: Final = 1_000_000_000


def figures_bar(figures: FiguresNow) -> Html:
    """Return the figures in a row."""
    return join(
        _figure("alive", _count(figures.alive, 9_999), "alive", title=f"{figures.alive:,} processes are alive"),
        _figure(
            "waiting",
            _count(figures.waiting, 999),
            "waiting",
            state="needs-you" if figures.waiting else None,
            title=f"{figures.waiting:,} questions wait for a person",
        ),
        _figure(
            "failed",
            _count(figures.failed_per_minute, 999),
            "failed/min",
            state="failed" if figures.failed_per_minute else None,
            title=f"{figures.failed_per_minute:,} processes failed in the last minute",
        ),
        _figure(
            "spend",
            _amount(figures.spent_micro_usd),
            _describe_budget(figures),
            sparkline(figures.hours_micro_usd),
            title=f"{money(figures.spent_micro_usd)} for model calls since midnight UTC",
        ),
        _figure("p95", duration(figures.p95_s), "p95", title="95 of 100 model calls took at most this long"),
        tag("span", "○ connecting", id="live", class_="live", data_live="waiting", role="status", data_keep=True),
    )


def _count(number: int, most: int) -> str:
    """Return a number; above the most that there is room for in thousands."""
    return str(number) if number <= most else f"{min(number, 999_999) // 1_000}k"


def _amount(micro_usd: int) -> str:
    """Return an amount in at most seven characters: `$0.0002`, `$4.12`, `$12,345`."""
    if 0 < micro_usd < _CENT:
        return f"${micro_usd / 1_000_000:.4f}"
    return f"${micro_usd / 1_000_000:,.0f}" if micro_usd >= _THOUSAND_USD else f"${micro_usd / 1_000_000:.2f}"


def _describe_budget(figures: FiguresNow) -> str:
    """Return what stands behind the spend of today. The budget of the kernel also counts earlier days: then what is
    left of it is told."""
    limit, left = figures.limit_micro_usd, figures.left_micro_usd
    if limit is None or left is None:
        return "today"
    if limit - left == figures.spent_micro_usd:
        return f"of {_amount(limit)} today"
    return f"today, {_amount(left)} of {_amount(limit)} left"


def _figure(
    name: str, value: Child, label: str, more: Child = None, *, state: str | None = None, title: str | None = None
) -> Html:
    return tag(
        "span",
        tag("strong", value, class_="value", data_widest=_WIDEST[name]),
        " ",
        tag("span", label, class_="label"),
        more,
        class_="figure",
        data_figure=name,
        data_state=state,
        title=title,
    )


def sparkline(values: Sequence[float], label: str = "Spend of each hour of today") -> Html:
    """Return a small picture of a row of figures; the last one is marked. One alone is a level line."""
    values = (*values, *values) if len(values) == 1 else values
    peak = max(values, default=0) or 1
    step = _WIDTH / max(1, len(values) - 1)
    points = [(index * step, _HEIGHT - 2 - (_HEIGHT - 4) * value / peak) for index, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    last = points[-1] if points else (0.0, _HEIGHT - 2.0)
    return tag(
        "svg",
        tag("polyline", points=path, fill="none", class_="spark-line"),
        tag("circle", cx=f"{last[0]:.1f}", cy=f"{last[1]:.1f}", r="1.5", class_="spark-end"),
        viewBox=f"-2 0 {_WIDTH + 4} {_HEIGHT}",
        width=_WIDTH + 4,
        height=_HEIGHT,
        class_="spark",
        role="img",
        aria_label=label,
    )


# What to do on a server on which nothing has happened yet, in the empty places of its pages.

_COMMAND: Final = "lyra serve --load FILE.py"
_FILE: Final = "def setup(kernel):\n    kernel.register_agent('helper', Agent('helper', model='…'))"


def nothing_yet(call: HttpCall, what: str) -> Html:
    """Return an empty place: what would be here, and the first step to it."""
    agents = call.parts.chats.directory.agents().values()
    if any(agent.declaration is not None for agent in agents):
        talk = tag("a", "Talk to an agent", href=link(call, "chat"), class_="button")
        return empty(what, more=tag("p", talk))
    note = tag("p", "where the file has the agents:", class_="note")
    look = tag("p", "To look around first, ", tag("code", "lyra demo --web"), " serves a team at work.", class_="note")
    return empty(what, _COMMAND, more=[note, tag("pre", tag("code", _FILE)), look])


# The time before the server began, on pages that count calls: a first look does not wait until it has been read.

PAGE_WAIT_S: Final = 0.05


async def past_note(call: HttpCall) -> Html | None:
    """Have the past read; a sentence where the page is shown before that is done."""
    records = call.parts.records
    if call.headers.get("x-region"):
        await records.load_past()
        return None
    if await records.load_past_within(PAGE_WAIT_S):
        return None
    await records.load_recent()
    return tag("p", "Older calls are still being read. They appear here by themselves.", class_="note", role="status")
