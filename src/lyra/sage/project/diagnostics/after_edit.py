"""Diagnostics with the result of an edit: `add_diagnostics(tools, …)` wraps the tools that edit files.

    tools = diagnosed(tools, Diagnostics(config.diagnostics, workspace))

The programs that the settings name look at a file before and after an edit; what is new comes first. What they said of
a content is remembered, so that of several edits in a row only the first waits for them twice. The result of the tool
is journaled with the diagnostics in it. Programs speak with words of the project's files, so the output of such a tool
is untrusted. An edit never fails because of a program that does.

A language server runs as long as the agent: it is told of each edit, and asked for its diagnostics.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import msgspec

from lyra.core.tool import Tool, ToolCall, ending
from lyra.errors import LyraError
from lyra.kernel.base.tasks import Tasks
from lyra.sage.project.diagnostics.code_problem import (
    PROBLEMS_MAX,
    CheckCommand,
    CheckReport,
    CodeProblem,
    FileChecks,
    check_profile,
    describe,
    problem_of,
    run_check,
)
from lyra.sage.project.repo_map.outline import language_of
from lyra.tools.builtin.files import TextFile
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.wrapped import Next, add_layers, pure

if TYPE_CHECKING:
    from lyra.sandbox import Pipes, Sandbox


_LIFE_S: Final = 365 * 24 * 3600.0
_CPU_S: Final = 24 * 3600
_STARTS_MAX: Final = 3  # of one command line
_FILES_OPEN_MAX: Final = 50
_QUIET_S: Final = 0.3  # without another publication the diagnostics are complete
_SHOWN_SEVERITY_MAX: Final = 2  # 1 is an error, 2 a warning; information and hints are left out
_CAPABILITIES: Final = {
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {"dynamicRegistration": False},
    },
}


class LanguageServers:
    """The servers of one workspace, by command line and root."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._servers: dict[tuple[tuple[str, ...], str], _Server] = {}
        self._starts: dict[tuple[str, ...], int] = {}
        self._lock = asyncio.Lock()

    async def check(self, command: CheckCommand, path: str, text: str, *, root: str) -> CheckReport:
        """Return what the server says of a file with this text, whose path starts at the root."""
        program = command.program
        try:
            async with asyncio.timeout(command.timeout_s):
                server = await self._server(command, root)
                return CheckReport(program, await server.diagnostics(path, text))
        except TimeoutError:
            return CheckReport(program, failure=f"it has not answered within {command.timeout_s:g} s")
        except StreamEnded as ended:
            return CheckReport(program, failure=f"{ended}")
        except LyraError as error:
            return CheckReport(program, failure=f"it could not be started: {error.message}")

    async def _server(self, command: CheckCommand, root: str) -> _Server:
        key = (command.words, root)
        async with self._lock:
            server = self._servers.get(key)
            if server is None or not server.runs:
                starts = self._starts.get(command.words, 0)
                if starts >= _STARTS_MAX:
                    raise StreamEnded(f"it has ended {starts} times, and is not started again")
                self._starts[command.words] = starts + 1
                server = self._servers[key] = await _Server.start(command, root, self._sandbox)
                end_with = ending.get()
                if end_with is not None:
                    end_with(server.end)
        await server.ready()
        return server

    async def close(self) -> None:
        """End all servers."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await asyncio.gather(*server.end())
            await server.close()


class _Server:
    def __init__(self, command: CheckCommand, root: str, pipes: Pipes) -> None:
        self._program = command.program
        self._root = root
        self._pipes = pipes
        self._tasks = Tasks()
        self._stream = MessageStream(pipes.reader, pipes.writer, self._on_notification)
        self._versions: dict[str, int] = {}  # of the files that are open
        self._published: dict[str, tuple[int | None, list[Any]]] = {}
        self._news = asyncio.Event()
        self._reading = self._tasks.start(self._stream.receive(), name=f"language server {self._program}")
        self._greeting = self._tasks.start(self._greet(), name=f"greeting of {self._program}")
        self._greeting.add_done_callback(_mark_seen)
        self._ending: asyncio.Task[Any] | None = None
        self._can_be_asked = False
        self._turn = asyncio.Lock()  # one file at a time

    @classmethod
    async def start(cls, command: CheckCommand, root: str, sandbox: Sandbox) -> _Server:
        from lyra.sandbox import Limits

        profile = check_profile(root, command.readable, Limits(wall_s=_LIFE_S, cpu_s=_CPU_S))
        return cls(command, root, await sandbox.pipes(command.words, profile))

    @property
    def runs(self) -> bool:
        return self._pipes.running and not self._reading.done()

    async def ready(self) -> None:
        """Wait for the greeting, which continues where a caller has no time left."""
        await asyncio.shield(self._greeting)

    def end(self) -> list[asyncio.Future[Any]]:
        """End the program; gives what is done when it has ended."""
        if self._ending is None:
            self._ending = self._tasks.start(self._pipes.close(0), name=f"end of {self._program}")
        return [self._ending]

    async def close(self) -> None:
        await self._tasks.close()

    async def _greet(self) -> None:
        uri = _uri(self._root)
        answer = await self._stream.request(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": "lyra"},
                "rootUri": uri,
                "rootPath": self._root,
                "workspaceFolders": [{"uri": uri, "name": os.path.basename(self._root)}],
                "capabilities": _CAPABILITIES,
            },
        )
        abilities = answer.get("capabilities") if isinstance(answer, dict) else None
        provider = abilities.get("diagnosticProvider") if isinstance(abilities, dict) else None
        self._can_be_asked = provider not in (None, False)
        await self._stream.notify("initialized", {})

    # ------------------------------------------------------------ one file
    async def diagnostics(self, path: str, text: str) -> tuple[CodeProblem, ...]:
        async with self._turn:
            uri = _uri(os.path.join(self._root, path))
            version = await self._show(uri, path, text)
            items = await self._ask(uri) if self._can_be_asked else None
            if items is None:
                items = await self._wait(uri, version)
        return tuple(_problems(self._program, path, items))

    async def _show(self, uri: str, path: str, text: str) -> int:
        """Give the server the text of a file; returns its version."""
        version = self._versions.get(uri, 0) + 1
        self._published.pop(uri, None)
        self._news.clear()
        if version == 1:
            if len(self._versions) >= _FILES_OPEN_MAX:
                oldest = next(iter(self._versions))
                del self._versions[oldest]
                await self._stream.notify("textDocument/didClose", {"textDocument": {"uri": oldest}})
            document = {"uri": uri, "languageId": _language_id(path), "version": 1, "text": text}
            await self._stream.notify("textDocument/didOpen", {"textDocument": document})
        else:
            change = {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}
            await self._stream.notify("textDocument/didChange", change)
        self._versions[uri] = version
        await self._stream.notify("textDocument/didSave", {"textDocument": {"uri": uri}, "text": text})
        return version

    async def _ask(self, uri: str) -> list[Any] | None:
        answer = await self._stream.request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        items = answer.get("items") if isinstance(answer, dict) else None
        return items if isinstance(items, list) else None

    async def _wait(self, uri: str, version: int) -> list[Any]:
        """Return what the server publishes for this version, once it has been quiet for a moment."""
        items: list[Any] | None = None
        while True:
            known = self._published.get(uri)
            if known is not None and (known[0] is None or known[0] >= version):
                items = known[1]
            self._news.clear()
            if items is None:
                if not self.runs:
                    raise StreamEnded("it has ended")
                await self._until_news()
                continue
            try:
                async with asyncio.timeout(_QUIET_S):
                    await self._until_news()
            except TimeoutError:
                return items

    async def _until_news(self) -> None:
        """Wait for a publication, or for the end of the server."""
        news = self._tasks.start(self._news.wait(), name="news of a language server")
        try:
            await asyncio.wait((news, self._reading), return_when=asyncio.FIRST_COMPLETED)
            if self._reading.done():
                raise StreamEnded("it has ended")
        finally:
            news.cancel()

    def _on_notification(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics" or not isinstance(params, dict):
            return
        uri, items, version = params.get("uri"), params.get("diagnostics"), params.get("version")
        if isinstance(uri, str) and isinstance(items, list):
            known = _uri(unquote(urlsplit(uri).path))  # servers write the same address in different ways
            self._published[known] = (version if isinstance(version, int) else None, items[:PROBLEMS_MAX])
            if len(self._published) > 4 * _FILES_OPEN_MAX:
                del self._published[next(iter(self._published))]
            self._news.set()


def _mark_seen(task: asyncio.Task[Any]) -> None:
    """Mark the error of a task as seen: the callers that wait for it get it, and there may be none any more."""
    if not task.cancelled():
        task.exception()


def _uri(path: str) -> str:
    return f"file://{quote(path)}"


def _language_id(path: str) -> str:
    known = {"c_sharp": "csharp", "tsx": "typescriptreact", "shell": "shellscript"}
    language = language_of(path)
    return known.get(language, language) or "plaintext"


def _problems(program: str, path: str, items: list[Any]) -> list[CodeProblem]:
    problems = []
    for item in items[:PROBLEMS_MAX]:
        if not isinstance(item, dict) or not isinstance(item.get("message"), str):
            continue
        severity = item.get("severity")
        if isinstance(severity, int) and severity > _SHOWN_SEVERITY_MAX:
            continue
        code = item.get("code")
        words = f"{code} {item['message']}" if isinstance(code, (str, int)) else item["message"]
        line, column = _position(item.get("range"))
        problems.append(problem_of(program, path, line, column, words))
    return problems


def _position(value: Any) -> tuple[int, int]:
    start = value.get("start") if isinstance(value, Mapping) else None
    if not isinstance(start, Mapping):
        return 0, 0
    line, column = start.get("line"), start.get("character")
    return (line + 1 if isinstance(line, int) else 0, column + 1 if isinstance(column, int) else 0)


# ---------------------------------------------------------------- lsp messages

_MESSAGE_BYTES_MAX: Final = 16 << 20
_HEADERS_MAX: Final = 20
_HEADER: Final = re.compile(rb"[A-Za-z-]{1,100}")
_METHOD_NOT_FOUND: Final = -32601
_ENDED: Final = "it has ended"
# Answers to requests of a server, which may ask for settings and register what it can do later.
_ANSWERS: Final[dict[str, Callable[[Any], Any]]] = {
    "workspace/configuration": lambda params: [None for _ in (params or {}).get("items", ())],
    "workspace/workspaceFolders": lambda _params: None,
    "client/registerCapability": lambda _params: None,
    "client/unregisterCapability": lambda _params: None,
    "window/workDoneProgress/create": lambda _params: None,
    "workspace/diagnostic/refresh": lambda _params: None,
}


class StreamEnded(Exception):
    """The server has ended, or says what is no message."""


class MessageStream:
    """`told` is called with the method and the parameters of every notification."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Callable[[str, Any], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._told = told
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._ended: StreamEnded | None = None

    async def request(self, method: str, params: Any) -> Any:
        """Return the answer to a request; None where the server answers with an error."""
        self._count += 1
        number = self._count
        if self._ended is not None:
            raise self._ended
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Any) -> None:
        await self._send({"method": method, "params": params})

    async def _send(self, message: dict[str, Any]) -> None:
        if self._ended is not None:
            raise self._ended
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
            await self._writer.drain()
        except OSError:
            raise self._end(_ENDED) from None  # its end is seen here or by the reader, whichever comes first

    # ------------------------------------------------------------ receiving
    async def receive(self) -> None:
        """Read messages until the stream ends."""
        why = _ENDED
        try:
            while True:
                await self._take(await self._message())
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (ValueError, RecursionError, asyncio.LimitOverrunError):
            why = "it does not speak the Language Server Protocol"
        except StreamEnded as ended:
            why = str(ended)
        finally:
            self._end(why)

    def _end(self, why: str) -> StreamEnded:
        self._ended = self._ended or StreamEnded(why)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended)
        return self._ended

    async def _message(self) -> Any:
        length = -1
        for _ in range(_HEADERS_MAX):
            line = (await self._reader.readuntil(b"\r\n")).strip()
            if not line and length >= 0:
                break
            name, _, value = line.partition(b":")
            if not _HEADER.fullmatch(name):
                raise ValueError("a message has headers")
            if name.lower() == b"content-length":
                length = int(value)
        if not 0 <= length <= _MESSAGE_BYTES_MAX:
            raise ValueError("a message has a length")
        return json.loads(await self._reader.readexactly(length))

    async def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError("a message is an object")
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            answer = self._waiting.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message.get("result"))
        elif number is None:
            self._told(method, message.get("params"))
        else:
            await self._answer(number, method, message.get("params"))

    async def _answer(self, number: Any, method: str, params: Any) -> None:
        known = _ANSWERS.get(method)
        if known is None:
            await self._send({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": "not supported"}})
            return
        await self._send({"id": number, "result": known(params if isinstance(params, dict) else None)})


# The tools that edit one file, and the argument that names it.
EDIT_TOOLS: Final = {
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "Write": "file_path",
    "NotebookEdit": "notebook_path",
}
_FILE_BYTES_MAX: Final = 2 << 20  # larger files are not looked at
_REMEMBERED_MAX: Final = 200


class _Edited(NamedTuple):
    """A file by its root and its path there, and the programs for it."""

    root: str
    path: str
    commands: tuple[CheckCommand, ...]

    @property
    def whole(self) -> str:
        return os.path.join(self.root, self.path)


class Diagnostics:
    """The programs of one workspace, and what they said last. `settings` are those of `Config.diagnostics`."""

    def __init__(
        self, settings: Mapping[str, Mapping[str, Any]], workspace: Workspace, *, sandbox: Sandbox | None = None
    ) -> None:
        from lyra.sandbox import Sandbox

        self._checks = FileChecks(settings)
        self._workspace = workspace
        self._sandbox = sandbox or Sandbox()
        self._servers = LanguageServers(self._sandbox)
        self._known: OrderedDict[tuple[str, bytes], tuple[CheckReport, ...]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._checks)

    async def close(self) -> None:
        """End the language servers; they also end with the process that started them."""
        await self._servers.close()

    async def around(self, call: ToolCall, inner: Next) -> Any:
        """Return the layer around an edit."""
        edited = self._find_edit(call)
        if edited is None:
            return await inner(call)
        before = await self._before(edited)
        output = await inner(call)
        after = await self._reports(edited)
        if not isinstance(output, str) or not after:
            return output
        return f"{output}\n\n{describe(before, after)}"

    def _find_edit(self, call: ToolCall) -> _Edited | None:
        path = call.arguments.get(EDIT_TOOLS[call.name])
        if not isinstance(path, str) or not path or "\0" in path:
            return None
        real = os.path.realpath(self._workspace.absolute(path))
        root = next((root for root in self._workspace.roots if real.startswith(f"{root.rstrip('/')}/")), None)
        if root is None:
            return None
        inside = os.path.relpath(real, root)
        commands = self._checks.for_file(inside)
        return _Edited(root, inside, tuple(commands)) if commands else None

    # ------------------------------------------------------------ what the programs say
    async def _before(self, edited: _Edited) -> tuple[CheckReport, ...] | None:
        """Return what the programs say before an edit, none for a new file; None where one of them says nothing."""
        reports = await self._reports(edited)
        return None if any(report.failure for report in reports) else reports

    async def _reports(self, edited: _Edited) -> tuple[CheckReport, ...]:
        """Return what all programs say of a file as it is now; nothing of one that is not there or cannot be read."""
        try:
            data = await asyncio.to_thread(self._read, edited.whole)
        except (OSError, LyraError):
            return ()
        key = (edited.whole, blake2b(data, digest_size=16).digest())
        known = self._known.get(key)
        if known is None:
            known = tuple(await asyncio.gather(*(self._run(command, edited, data) for command in edited.commands)))
            self._remember(key, known)
        return known

    def _remember(self, key: tuple[str, bytes], reports: tuple[CheckReport, ...]) -> None:
        if any(report.failure for report in reports):
            return  # the program may work next time
        self._known[key] = reports
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def _run(self, command: CheckCommand, edited: _Edited, data: bytes) -> CheckReport:
        if not command.is_server:
            return await run_check(command, edited.path, root=edited.root, sandbox=self._sandbox)
        try:
            text = TextFile.decode(data, edited.path).text
        except LyraError as error:
            return CheckReport(command.program, failure=error.message)
        return await self._servers.check(command, edited.path, text, root=edited.root)

    def _read(self, path: str) -> bytes:
        return self._workspace.read(path, most=_FILE_BYTES_MAX).data


def add_diagnostics(tools: Iterable[Any], diagnostics: Diagnostics) -> list[Any]:
    """Return the tools; those of Lyra's own that edit a file add diagnostics to their results. Without settings, and
    for all other tools and sources of tools, nothing changes."""
    if not diagnostics:
        return list(tools)

    around = pure(diagnostics.around)

    def wrap(tool: Any) -> Any:
        if not isinstance(tool, Tool) or not tool.builtin or tool.name not in EDIT_TOOLS:
            return tool
        layer = add_layers(tool, [around])
        return msgspec.structs.replace(layer, trusted=False, untrusted=True)

    return [wrap(tool) for tool in tools]
