"""DynamicTools: the tools of a folder of files, as they are now.

    tools = DynamicTools("tools/", workspace=".")
    Agent("helper", model=…, tools=[tools, weather])

A source of tools (`lyra.tools.source`): an agent looks again at each message, so that a file that is added, changed or
taken away counts from the next message on, without a restart. Looking costs a listing of the folder; a file is read
when its size or time has changed. A file with a mistake keeps the tools of its last correct version, and is in
`problems` until it is corrected. Of two tools with one name the one of the first file counts.

`read_tools` reads one file of tools (YAML, TOML or JSON) and gives its Tools, or all of its mistakes with their lines.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import FORMATS, Path, form_of, parse, text_of
from lyra.core.checking.watched_files import WatchedFiles
from lyra.core.clock import Clock, loop_clock
from lyra.core.own_files import add_own_path
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import CONCURRENCY, Tool, admitted, check_tool_name
from lyra.errors import ConfigError, ParseError, ToolError
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.protection.obeyed import find_asked_part, find_obeyed_part
from lyra.sandbox.protection.protected_names import COMMAND_NAMES, HIDDEN, NameTable
from lyra.sandbox.proxy import system_lookup
from lyra.sandbox.sandbox import Sandbox
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.http_guard import Dial
from lyra.tools.yaml import command, http
from lyra.tools.yaml.template import (
    DeclaredTool,
    Params,
    Template,
    ToolEnvironment,
    ToolKind,
    narrow_grant,
    read_params,
    select_needs,
    template,
)

# ---------------------------------------------------------------- files
# YAML tools of the kinds `file_read` and `file_write`: one file of the workspace, named by the file and its values.

T = TypeVar("T")

KEYS_OF_READ: Final = ("type", "path", "timeout")
KEYS_OF_WRITE: Final = ("type", "path", "content", "timeout")
_READ_BYTES_MAX: Final = 10 << 20
_SHOWN_CHARS_MAX: Final = 100_000
_WRITE_CHARS_MAX: Final = 1_000_000
_SECRETS: Final = NameTable((), HIDDEN)


class _FileTool:
    """The path of a tool, and the checks before it is opened."""

    def __init__(self, environment: ToolEnvironment, path: Template, own: list[Capability], verb: str) -> None:
        self._workspace = environment.workspace
        self._path = path
        root = environment.workspace.root.rstrip("/")
        self._own = Grant(own or [f"{verb}:{root}/**"])
        self._verb = verb

    @property
    def rights(self) -> tuple[Capability, ...]:
        return ()

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]:
        return self._workspace.need(self._verb, self._fill_path(values))

    def _fill_path(self, values: Mapping[str, Any]) -> str:
        path = self._path.fill(values)
        if not path or "\0" in path:
            raise ToolError("the path is empty", reason="invalid_arguments")
        if self._path.names:
            for name in self._path.names:
                value = str(values[name])
                if ".." in value.split("/") or (value.startswith(("/", "~")) and self._path.lone is None):
                    raise ToolError(f"{name} is not a path below the tool's own", reason="invalid_arguments")
        return path

    def _allow_path(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """Return the path and its real path, if the tool may use it; only the real path may be opened."""
        path = self._fill_path(values)
        real = os.path.realpath(self._workspace.absolute(path))
        narrow_grant(self._own).check(Capability(self._verb, real))
        part = self._find_protected_part(path, real) if self._path.names else None
        if part is not None:
            raise ToolError(
                f"{part} is protected", hint="only a file that names it in full opens it", reason="permission_denied"
            )
        return path, real

    def _find_protected_part(self, path: str, real: str) -> str | None:
        """Return the part of a path because of which the tool may not use it."""
        raise NotImplementedError


def _name_in(table: NameTable, workspace: Workspace, path: str) -> str | None:
    return table.part(workspace.display_path(path), os.path.basename(workspace.root))


def _run_pinned(real: str, act: Callable[[], T]) -> T:
    """Run `act` in the context of its thread so that the workspace opens this file and no other."""
    admitted.set(real)
    return act()


class FileRead(_FileTool):
    untrusted = True
    idempotent = True

    def _find_protected_part(self, path: str, real: str) -> str | None:
        return _name_in(_SECRETS, self._workspace, real) or _name_in(_SECRETS, self._workspace, path)

    async def run(self, values: Mapping[str, Any]) -> str:
        path, real = self._allow_path(values)
        opened = await asyncio.to_thread(_run_pinned, real, lambda: self._workspace.read(path, most=_READ_BYTES_MAX))
        if b"\0" in opened.data:
            raise ToolError(f"{path} is not a text", reason="binary")
        text = opened.data.decode("utf-8", "replace")
        return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}\n… the rest is left out …"


class FileWrite(_FileTool):
    untrusted = False
    idempotent = False

    def __init__(
        self, environment: ToolEnvironment, path: Template, own: list[Capability], verb: str, content: Template
    ) -> None:
        super().__init__(environment, path, own, verb)
        self._content = content

    def _find_protected_part(self, path: str, real: str) -> str | None:
        roots = self._workspace.roots
        return (
            find_obeyed_part(real, roots)
            or find_asked_part(real, roots)
            or _name_in(COMMAND_NAMES, self._workspace, path)
        )

    async def run(self, values: Mapping[str, Any]) -> str:
        path, real = self._allow_path(values)
        content = self._content.fill(values) or ""
        if len(content) > _WRITE_CHARS_MAX:
            raise ToolError(f"the content has more than {_WRITE_CHARS_MAX} characters", reason="invalid_arguments")
        return await asyncio.to_thread(_run_pinned, real, lambda: self._write(path, content.encode()))

    def _write(self, path: str, data: bytes) -> str:
        workspace, in_full = self._workspace, not self._path.names
        with workspace.lock:
            if not workspace.exists(path):
                real, done = workspace.replace(path, data, named_in_full=in_full), "made"
            else:
                old = workspace.read(path)
                real, done = workspace.replace(old.path, data, old.mode, named_in_full=in_full), "written"
        return f"{workspace.display_path(real)} was {done}, {len(data)} bytes"


# ---------------------------------------------------------------- reading them from a file
def read_file_read(declared: DeclaredTool) -> FileRead | None:
    given, path, params, report, environment, _, needs = declared  # the time-out of the whole tool covers it
    place = _path(given, path, params, report)
    return None if place is None else FileRead(environment, place, select_needs(needs, "fs.read"), "fs.read")


def read_file_write(declared: DeclaredTool) -> FileWrite | None:
    given, path, params, report, environment, _, needs = declared
    place = _path(given, path, params, report)
    given_content = given.get("content", "{{content}}")
    content = template(given_content, (*path, "content"), params, report, "content")
    if place is None or content is None:
        return None
    return FileWrite(environment, place, select_needs(needs, "fs.write"), "fs.write", content)


def _path(given: dict[str, Any], path: Path, params: Params, report: Report) -> Template | None:
    parsed = template(given.get("path", "{{path}}"), (*path, "path"), params, report, "path")
    if parsed is None:
        return None
    unfit = [
        name
        for name in dict.fromkeys(parsed.names)
        if params[name].type not in ("string", "integer") or params[name].may_be_missing
    ]
    for name in unfit:
        report.add((*path, "path"), f"{name} is a part of the path: make it a string, and required")
    climbs = ".." in parsed.text.split("/")
    if climbs:
        report.add((*path, "path"), "a path has no '..' in it", "paths begin at the workspace")
    return None if unfit or climbs else parsed


_KEYS: Final = ("name", "description", "params", "implementation", "needs", "idempotent", "concurrency", "deferred")


class _Row(NamedTuple):
    """A kind of tool: its keys, the verbs that its `needs` may name, and the function that reads it."""

    keys: tuple[str, ...]
    uses: tuple[str, ...]
    read: Callable[[DeclaredTool], ToolKind | None]


KINDS: Final[dict[str, _Row]] = {
    "http": _Row(http.KEYS, http.USES, http.read_http),
    "exec": _Row(command.KEYS, command.USES, command.read_command),
    "file_read": _Row(KEYS_OF_READ, ("fs.read",), read_file_read),
    "file_write": _Row(KEYS_OF_WRITE, ("fs.write",), read_file_write),
}
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m)\Z")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_TIMEOUT_S: Final = 30.0
_TIMEOUT_S_MAX: Final = 600.0
_DESCRIPTION_MAX: Final = 4_000
_TOOLS_MAX: Final = 100  # in one file


def read_tools(data: bytes, file: str, environment: ToolEnvironment) -> tuple[list[Tool], list[Mistake]]:
    """Return the tools of a file and its mistakes; with a mistake there are no tools."""
    try:
        document, places = parse(text_of(data, file), form_of(file, what="tool"), file)
    except ParseError as error:
        return [], [Mistake.from_error(error)]
    except ConfigError as error:
        return [], [Mistake(file, 1, 1, error.message, error.hint)]
    report = Report(file, places)
    given = _declarations(document, report)
    read = [_tool(declared, path, report, environment) for declared, path in given]
    tools = [tool for tool in read if tool is not None]
    _check_names(given, report)
    return ([] if report.mistakes else tools), sorted(
        report.mistakes, key=lambda declared: (declared.line, declared.column)
    )


def _check_names(given: list[tuple[Any, Path]], report: Report) -> None:
    """Report names that occur twice, also those of tools with other mistakes."""
    names: set[str] = set()
    for tool, path in given:
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if isinstance(name, str) and name in names:
            report.add(path, f"there are two tools {name!r}")
        elif isinstance(name, str):
            names.add(name)


def _declarations(document: Any, report: Report) -> list[tuple[Any, Path]]:
    path: Path = ()
    if isinstance(document, Mapping) and "tools" in document:
        report.mapping(document, (), "a file of tools", ("tools",))
        document, path = document["tools"], ("tools",)
        if not isinstance(document, list):
            report.add(path, "tools is a list of tools")
            return []
    elif not isinstance(document, list):
        return [(document, ())]
    if not 1 <= len(document) <= _TOOLS_MAX:
        report.add(path, f"a file has between 1 and {_TOOLS_MAX} tools")
        return []
    return [(item, (*path, index)) for index, item in enumerate(document)]


def _tool(value: Any, path: Path, report: Report, environment: ToolEnvironment) -> Tool | None:
    before = len(report.mistakes)
    given = report.mapping(value, path, "a tool", _KEYS)
    if given is None:
        return None
    name = _name(given.get("name"), (*path, "name"), report)
    description = report.text(
        given.get("description"), (*path, "description"), "the description", most=_DESCRIPTION_MAX
    )
    params = read_params(given.get("params") or [], (*path, "params"), report)
    needs = _needs(given.get("needs"), (*path, "needs"), report)
    flags = {key: report.flag(given[key], (*path, key), key) for key in ("idempotent", "deferred") if key in given}
    concurrency = _concurrency(given.get("concurrency", "parallel"), (*path, "concurrency"), report)
    kind, timeout_s = _kind(given.get("implementation"), (*path, "implementation"), params, report, environment, needs)
    if kind is None or name is None or len(report.mistakes) > before:
        return None
    return Tool(
        name,
        description or "",
        params.schema,
        idempotent=flags.get("idempotent", kind.idempotent),
        run=_ToolRun(params, kind),
        needs_of=lambda arguments: _list_needs(params, kind, arguments),
        untrusted=kind.untrusted,
        trusted=not kind.untrusted,
        guarded=True,
        concurrency=concurrency,
        deferred=flags.get("deferred", False),
        timeout_s=timeout_s,
        folders=environment.workspace.roots,
    )


class _ToolRun:
    """The function of a YAML tool: checks the arguments, then runs the kind."""

    __slots__ = ("_kind", "_params", "is_async", "takes")

    def __init__(self, params: Params, kind: ToolKind) -> None:
        self._params = params
        self._kind = kind
        self.is_async = True
        self.takes: frozenset[str] = frozenset()

    @property
    def rights(self) -> tuple[Capability, ...]:
        """Return what an agent that uses this tool has to be granted."""
        return self._kind.rights

    @property
    def commands(self) -> tuple[Capability, ...]:
        """The commands that it runs, so that a Grant can name exactly these."""
        return tuple(getattr(self._kind, "commands", ()))

    async def __call__(self, **arguments: Any) -> str:
        return await self._kind.run(self._params.read(arguments))


def _list_needs(params: Params, kind: ToolKind, arguments: dict[str, Any]) -> list[Capability]:
    try:
        return kind.needs_of(params.read(arguments))
    except ToolError:
        return []  # the call itself is refused, with a better message


# ---------------------------------------------------------------- the parts of a tool
def _name(value: Any, path: Path, report: Report) -> str | None:
    try:
        return check_tool_name(value)
    except ConfigError as error:
        report.add(path, error.message, error.hint)
        return None


def _needs(value: Any, path: Path, report: Report) -> list[Capability]:
    """Return the declared needs of the tool; for each verb named here they are all that it may do."""
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        report.add(path, "needs is a list of capabilities, such as 'net.http:api.example.com'")
        return []
    needs: list[Capability] = []
    for index, text in enumerate(value):
        try:
            needs.append(Capability.of(text))
            Grant(needs[-1:])
        except ConfigError as error:
            report.add((*path, index), error.message, error.hint)
    return needs


def _concurrency(value: Any, path: Path, report: Report) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000:
        return value
    if isinstance(value, str) and value in CONCURRENCY:
        return value
    report.add(path, f"concurrency is {', '.join(CONCURRENCY)} or a number, not {value!r}")
    return "parallel"


def _kind(
    value: Any, path: Path, params: Params, report: Report, environment: ToolEnvironment, needs: list[Capability]
) -> tuple[ToolKind | None, float]:
    if not isinstance(value, Mapping):
        report.add(path, "a tool has an implementation: a mapping with a type", f"type: {', '.join(KINDS)}")
        return None, 0.0
    timeout_s = _timeout(value.get("timeout", _TIMEOUT_S), (*path, "timeout"), report)
    word = report.word(value.get("type"), (*path, "type"), "the type of an implementation", KINDS)
    if word is None:
        return None, 0.0
    row = KINDS[word]
    given = report.mapping(value, path, f"an implementation of type {word}", row.keys) or {}
    for index, need in enumerate(needs):
        if need.name not in row.uses:
            use = " and ".join(row.uses)
            report.add((*path[:-1], "needs", index), f"a tool of type {word} uses {use}, not {need.name}")
    kind: ToolKind | None = row.read(DeclaredTool(given, path, params, report, environment, timeout_s, needs))
    return kind, timeout_s


def _timeout(value: Any, path: Path, report: Report) -> float:
    match = _TIME.match(value) if isinstance(value, str) else None
    seconds = float(match[1]) * _UNITS[match[2]] if match else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= _TIMEOUT_S_MAX:
        report.add(path, f"a timeout is seconds, up to {_TIMEOUT_S_MAX:g}, or a text such as '30s', not {value!r}")
        return _TIMEOUT_S
    return float(seconds)


_FILES_MAX: Final = 500
_FILE_BYTES_MAX: Final = 128 * 1024  # bounds the time that a message waits for reading


class DynamicTools:
    """`path` is a folder or one file. `on_change` is called after a refresh that found a change. `accept` is asked for
    the path and the content of each file that is read; one that it refuses has no tools."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        workspace: Workspace | str | None = None,
        sandbox: Sandbox | None = None,
        secrets: Collection[str] | None = None,
        inside: Collection[str] = (),
        env: Mapping[str, str] | None = None,
        lookup: Lookup = system_lookup,
        dial: Dial | None = None,
        on_change: Callable[[DynamicTools], None] | None = None,
        accept: Callable[[str, bytes], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        place = workspace if isinstance(workspace, Workspace) else Workspace(workspace or os.getcwd())
        self.path = os.fspath(path)
        add_own_path(self.path)  # its tools act with rights that the file names
        self._environment = ToolEnvironment(
            workspace=place,
            sandbox=sandbox or Sandbox(),
            secrets=None if secrets is None else frozenset(secrets),
            inside=frozenset(inside),
            env=env,
            lookup=lookup,
            dial=dial,
        )
        self._on_change = on_change
        self._files = WatchedFiles(self._read, bytes_max=_FILE_BYTES_MAX, accept=accept, clock=clock or loop_clock())
        self._tools: dict[str, Tool] = {}
        self._listing: tuple[Mistake, ...] = ()  # what is wrong with the folder itself
        self._mistakes: tuple[Mistake, ...] = ()
        self.refresh()

    # ------------------------------------------------------------ what there is
    def __lyra_tools__(self) -> tuple[Tool, ...]:
        self.refresh()
        return tuple(self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.__lyra_tools__())

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """All mistakes in the files, as of the last refresh."""
        return self._mistakes

    @property
    def problems(self) -> tuple[str, ...]:
        """The mistakes as texts: `file:line: sentence`."""
        return tuple(str(mistake) for mistake in self._mistakes)

    @property
    def accepted(self) -> bool:
        """Whether a file was accepted, as of the last refresh."""
        return self._files.accepted

    # ------------------------------------------------------------ looking
    def refresh(self) -> bool:
        """Look at the files; True if a tool or a mistake has changed."""
        names, listing = self._list_names()
        if not self._files.refresh(names) and self._listing == listing:
            return False
        self._listing = listing
        self._gather(names, listing)
        if self._on_change is not None:
            self._on_change(self)
        return True

    def _list_names(self) -> tuple[list[str], tuple[Mistake, ...]]:
        """Return the names of the files, in order; the known ones for a folder that cannot be read."""
        try:
            if not os.path.isdir(self.path):
                os.stat(self.path)
                return [self.path], ()
            with os.scandir(self.path) as entries:
                names = sorted(
                    entry.path
                    for entry in entries
                    if not entry.name.startswith(".") and os.path.splitext(entry.name)[1].lower() in FORMATS
                )
        except FileNotFoundError:
            return [], (Mistake(self.path, 1, 1, "there is no such file or folder"),)
        except OSError as error:
            return list(self._files.paths), (Mistake(self.path, 1, 1, f"it cannot be read: {error.strerror}"),)
        if len(names) > _FILES_MAX:
            message = f"only the first {_FILES_MAX} of {len(names)} files are read"
            return names[:_FILES_MAX], (Mistake(self.path, 1, 1, message),)
        return names, ()

    def _read(self, data: bytes, name: str) -> tuple[tuple[Tool, ...], list[Mistake]]:
        tools, mistakes = read_tools(data, name, self._environment)
        return tuple(tools), mistakes

    def _gather(self, names: list[str], mistakes: tuple[Mistake, ...]) -> None:
        tools: dict[str, Tool] = {}
        homes: dict[str, str] = {}
        gathered = list(mistakes)
        for name in names:
            gathered += self._files.mistakes(name)
            for tool in self._files.value(name) or ():
                if tool.name in tools:
                    gathered.append(Mistake(name, 1, 1, f"there is a tool {tool.name!r} in {homes[tool.name]} already"))
                else:
                    tools[tool.name], homes[tool.name] = tool, name
        self._tools = tools
        self._mistakes = tuple(gathered)

    def __repr__(self) -> str:
        return f"<DynamicTools {self.path}: {', '.join(self._tools)}>"
