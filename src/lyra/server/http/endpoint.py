"""An Endpoint: one thing that can be asked over HTTP, and an HttpCall: one request that asks it.

An endpoint declares its method and path, what its body, its query and its answer are (types), and the function that
answers. The server, the OpenAPI document and the reference page are made from these declarations, so they cannot
differ. A handler gets an HttpCall, whose body and query are checked values, and gives a value of the declared type, a
`Streamed` for server-sent events, or a `RawAnswer`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import msgspec

from lyra.core.checking.check import did_you_mean
from lyra.errors import ConfigError
from lyra.kernel.workers.blocks import unknown_process
from lyra.server.http.problems import HttpProblem, HttpRefusal
from lyra.server.owners import owner_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.server.http.guard import RequestIdentity
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_PATH_SEGMENTS_MAX: Final = 32
_FORM_MEDIA: Final = "application/x-www-form-urlencoded"
_FORM_FIELDS_MAX: Final = 100
_GROUPS_FOR_PEOPLE: Final = frozenset({"pages", "acts"})


class RequestBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A JSON body. With a token that is not bound, `user_id` names the user for whom it acts."""

    user_id: str = ""


class RequestQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The query of a URL."""

    user_id: str = ""


class Streamed(NamedTuple):
    """An answer as server-sent events."""

    pieces: AsyncGenerator[bytes, None]
    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)


class RawAnswer(NamedTuple):
    """An answer that is made already."""

    body: bytes
    media: str = "application/json"
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)


class Endpoint(msgspec.Struct, frozen=True):
    """See the module. `name` is unique: the OpenAPI operation, and the endpoint of the kernel's rate limits."""

    name: str
    method: str
    path: str
    summary: str
    handler: Callable[[HttpCall], Awaitable[Any]]
    answer: Any = dict[str, Any]
    body: Any = None
    query: Any = RequestQuery
    status: int = 200
    streams: bool = False  # answers with server-sent events
    may_stream: bool = False  # does so where the body has `stream: true`
    media: str = "application/json"  # of the answer
    is_open: bool = False  # needs no token
    checks_role: bool = False  # one path for reading and changing: its handler refuses a viewer what changes something
    # Gives the caller of a request that comes with a credential other than a token; None where it has no such one.
    identify: Callable[[HttpParts, Mapping[str, str]], Awaitable[Caller | None]] | None = None
    credential_hint: str = ""  # what a client without a known credential is told to send, in place of a token
    ends_with_client: bool = False  # is given up when the client leaves before the answer
    is_work: bool = False  # has an agent work: the limits set in the kernel hold
    statuses: tuple[int, ...] = ()  # of its errors, besides those that every endpoint has
    about: str = ""  # more than the summary, for the reference
    opens: Callable[[HttpParts], Any] | None = None  # made when the server opens: work that continues without a request

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_for_people(self) -> bool:
        """Whether a browser shows its answer: a page, or a form that leads to one."""
        return self.group in _GROUPS_FOR_PEOPLE

    @property
    def is_documented(self) -> bool:
        """Whether it stands in the OpenAPI document and the reference: pages for people and their files do not."""
        return not self.is_for_people and self.group not in ("assets", "downloads", "data")

    @property
    def parameters(self) -> list[str]:
        """The names in the path."""
        return [segment[1:-1] for segment in self.path.split("/") if segment.startswith("{")]


class HttpCall:
    """One request, checked: who asks, for what."""

    def __init__(
        self,
        parts: HttpParts,
        endpoint: Endpoint,
        identity: RequestIdentity,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        raw_path: str,
    ) -> None:
        self.parts = parts
        self.kernel: Kernel = parts.kernel
        self.endpoint = endpoint
        self.caller = identity.caller
        self.form_token = identity.form_token  # that a form of the page sends back
        self.cookie = identity.cookie
        self.logins = identity.logins
        self.path = path
        self.headers = headers
        self.raw_path = raw_path  # as it was asked for, below the place where the application is mounted
        self.form: dict[str, str] = {}
        self.query: Any = None
        self.body: Any = None
        self.raw_body = b""
        self.parent: Process | None = None  # the process below which the handler starts those of this call
        self.act = endpoint.name  # what the audit log calls it; "" where the request changed nothing
        self.act_target = ""  # what it was done to, besides the values in the path
        self.act_outcome = "ok"  # or why it was not done, where the answer tells that in its own form
        self.client = ""  # the address of the client
        self.shard = ""  # that the address of the request names: `/shards/SHARD/…`
        self.gathered: Any = None  # of a page of all shards: the figures of its header, and which shards are missing
        self.base_url = ""  # under which the client reaches this application

    @property
    def now(self) -> float:
        """The time by which the kernel stamps its rows: no change of the wall clock puts them into the future."""
        return self.kernel.core.now()

    def take_query(self, items: Iterable[tuple[str, str]]) -> None:
        values: dict[str, str] = {}
        for name, value in items:
            if values.setdefault(name, value) != value:
                raise ConfigError(f"{name} is given twice in the query", key=name)
        self.query = _convert(values, self.endpoint.query, "the query")

    def take_body(self, body: bytes) -> None:
        self.raw_body = body
        wanted = self.endpoint.body
        media = self.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media == _FORM_MEDIA and self.endpoint.is_for_people:
            self.form = _form_fields(body)
            return
        if wanted is None:
            return
        if not body.strip():
            raise ConfigError("the request needs a JSON body", hint=_fields_hint(wanted))
        if media != "application/json" and not media.endswith("+json"):
            raise HttpRefusal(415, "the body is JSON", hint="send content-type: application/json")
        try:
            self.body = msgspec.json.decode(body, type=wanted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the body cannot be read: {error}", hint=_fields_hint(wanted)) from None
        self.caller = self.caller.acting_for(getattr(self.body, "user_id", "") or "")

    def require_process(self, pid: str) -> str:
        """Return the pid of a process of the caller's; NoSuchProcess where there is none, also where it is
        another's."""
        self.caller.require_owner(owner_of(self.kernel, pid), unknown_process, pid)
        return pid


def _convert(values: dict[str, str], wanted: Any, what: str) -> Any:
    known = wanted.__struct_fields__
    for name in values:
        if name not in known:
            near = did_you_mean(name, known)
            hint = f"did you mean {near!r}?" if near else f"it takes {', '.join(known)}"
            raise ConfigError(f"{what} has an unknown key {name[:60]!r}", hint=hint, key=name[:60])
    try:
        return msgspec.convert(values, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{what} cannot be read: {error}") from None


def _form_fields(body: bytes) -> dict[str, str]:
    """Return the fields of a form as a browser sends it."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FORM_FIELDS_MAX
        )
    except ValueError:
        raise ConfigError("the form cannot be read") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if fields.setdefault(name, value) != value:
            raise ConfigError(f"{name[:60]} is given twice in the form", key=name[:60])
    return fields


def _fields_hint(wanted: Any) -> str | None:
    fields = getattr(wanted, "__struct_fields__", None)
    return f"it takes {', '.join(fields)}" if fields else None


class RouteMatch(NamedTuple):
    """A declared path that a path fits: its endpoints by method, and the values in its places."""

    route: str
    methods: dict[str, Endpoint]
    values: dict[str, str]

    def endpoint(self, method: str) -> Endpoint:
        """Return the endpoint of a method; HttpRefusal where there is none."""
        endpoint = self.methods.get(method)
        if endpoint is None:
            allowed = ", ".join(sorted(self.methods))
            raise HttpRefusal(405, f"this path takes {allowed}", headers={"allow": allowed})
        return endpoint


class PathTable:
    """The endpoints by path. A segment in braces takes any text, also one with an escaped slash."""

    __slots__ = ("_by_length", "_literal")

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._by_length: dict[int, list[tuple[tuple[str, ...], str, dict[str, Endpoint]]]] = {}
        for endpoint in endpoints:
            segments = tuple(endpoint.path.strip("/").split("/"))
            rows = self._by_length.setdefault(len(segments), [])
            methods = next((methods for known, _, methods in rows if known == segments), None)
            if methods is None:
                methods = {}
                rows.append((segments, "/" + "/".join(segments), methods))
            assert endpoint.method not in methods, endpoint.path
            methods[endpoint.method] = endpoint
        for rows in self._by_length.values():  # the most literal first
            rows.sort(key=lambda row: [segment.startswith("{") for segment in row[0]])
        self._literal = {  # by path, which the others need not be held against
            route.strip("/"): RouteMatch(route, methods, {})
            for rows in self._by_length.values()
            for _, route, methods in rows
            if "{" not in route
        }

    def match(self, raw_path: str) -> RouteMatch | None:
        """Return the declared path that a path fits; None where there is none."""
        path = raw_path.strip("/")
        if path in self._literal:
            return self._literal[path]
        given = path.split("/", _PATH_SEGMENTS_MAX)
        for segments, route, methods in self._by_length.get(len(given), ()):
            values = _match(segments, given)
            if values is not None:
                return RouteMatch(route, methods, values)
        return None


def _match(segments: tuple[str, ...], given: list[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for segment, text in zip(segments, given, strict=True):
        if segment[:1] == "{":
            if not text:
                return None
            values[segment[1:-1]] = unquote(text) if "%" in text else text
        elif segment != text:
            return None
    return values


# ---------------------------------------------------------------- page request
# Requests of browsers: whether a problem is shown as a page, and the addresses of pages.

_DATA_PATHS: Final = ("/api/", "/v1/", "/assets/", "/openapi.json", "/metrics", "/health", "/.well-known/")


class PageRequest(NamedTuple):
    """A request whose answer a browser shows."""

    path: str  # below the place where the application is mounted, as it was sent
    query: str
    headers: Mapping[str, str]
    has_login: bool  # whether a token can be shown here


ProblemPage = Callable[["HttpProblem", PageRequest], RawAnswer]


def wants_page(match: RouteMatch | None, method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return whether a problem is shown as a page: of a page or its form, or at a path without an endpoint that a
    browser opened."""
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


def link_to_itself(path: str) -> str:
    """Return the relative address of a page from itself. It never names another host."""
    last = path.rpartition("/")[2]
    return f"./{last}"


def with_slash(scope: Any) -> str:
    """Return the relative address of the root of an application that was asked for without a slash at the end, from
    which relative addresses would lead elsewhere."""
    last = scope.get("root_path", "").rpartition("/")[2]
    return f"./{last}/" + (f"?{query_text(scope)}" if scope["query_string"] else "")
