"""The language server: the open texts of an editor, and remarks about them.

The server keeps the open texts, says what is wrong with them soon after each change, and lets `features` answer the
rest. A change is looked at after a moment in which the next one may come; for a file that takes long, the moment is as
long as the last look took. What may come late (colours, lenses) waits for a pause in typing, so that remarks about
mistakes come first.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer

from lyra._version import __version__
from lyra.core.imported_node import NodeFile
from lyra.errors import SourceError
from lyra.vega.checker.checker import Load
from lyra.vega.lsp import wire
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.diagnostics import diagnose
from lyra.vega.lsp.project import Document, Position, Project, TextChange, path_of
from lyra.vega.lsp.wire import Protocol

_MOMENT_S: Final = 0.004  # after a change; most editors send the next one later than this
_MOMENT_S_MAX: Final = 1.0
_QUICK_S: Final = 0.05  # a look that takes no longer needs no longer moment
_REST_S: Final = 0.15  # so long after the last change, typing has paused
_OTHERS_S: Final = 0.25  # files that import the changed one can wait


class VegaLanguageServer(LanguageServer):
    protocol: Protocol

    def __init__(self, read_node: Callable[[str, str], NodeFile] | None = None) -> None:
        super().__init__("vega", __version__, protocol_cls=Protocol, max_workers=2)
        self.project = Project(read_node=read_node)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._took_s: dict[str, float] = {}
        self._changed_s: dict[str, float] = {}
        self.colours: dict[str, tuple[Analysis, list[int]]] = {}  # of which text they are
        self._lenses: dict[str, tuple[dict[str, str | None], list[tuple[int, str]]]] = {}

    # ---------------------------------------------------------------- texts

    def begin(self, params: types.InitializeParams) -> None:
        """Take what the client said at first: its folders. The encoding was chosen by then."""
        folders = [folder.uri for folder in params.workspace_folders or []] or [params.root_uri or ""]
        self.project.folders = [path_of(uri) for uri in folders if uri.startswith("file:")]
        self.project.encoding = str(
            getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding)
        )

    def folders_changed(self, event: types.WorkspaceFoldersChangeEvent) -> None:
        gone = {path_of(folder.uri) for folder in event.removed}
        added = [path_of(folder.uri) for folder in event.added]
        self.project.folders = [path for path in self.project.folders if path not in gone] + added

    def opened(self, item: types.TextDocumentItem) -> None:
        path = path_of(item.uri)
        encoding = self.project.encoding
        self.project.put(Document(item.uri, path, item.text, version=item.version, encoding=encoding))
        self._publish(path, thorough=True)
        self._later_others(path)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        document = self.project.open.get(path)
        if document is None:
            return
        for change in params.content_changes:
            document.apply(_change(change))
        document.version = params.text_document.version
        self.project.changed()
        self._changed_s[path] = asyncio.get_running_loop().time()
        took = self._took_s.get(path, 0.0)
        self._later(path, _MOMENT_S if took <= _QUICK_S else min(took, _MOMENT_S_MAX))
        self._later_others(path)

    def saved(self, uri: str) -> None:
        path = path_of(uri)
        if path in self.project.open:
            self._publish(path, thorough=True)
        self.project.changed()
        self._later_others(path)

    def closed(self, uri: str) -> None:
        path = path_of(uri)
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        self.project.remove(path)
        for known in (self._took_s, self._changed_s, self._lenses, self.colours):
            known.pop(path, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        self._later_others(path)

    def files_changed(self) -> None:
        """Something happened on the disk that the editor watches."""
        self.project.changed()
        for path in self.project.open:
            self._later(path, _OTHERS_S)

    # ---------------------------------------------------------------- what may come late

    async def rest(self, path: str) -> None:
        """Wait for a pause in the typing in a file. A client that no longer wants the answer cancels the request."""
        loop = asyncio.get_running_loop()
        while (left_s := self._changed_s.get(path, -_REST_S) + _REST_S - loop.time()) > 0:  # noqa: ASYNC110 - changes
            await asyncio.sleep(left_s)

    async def overlaps(self, path: str) -> list[tuple[int, str]]:
        """Return what overlaps in a file, by line: the plan of a whole program, made in a thread and kept for its
        texts."""

        await self.rest(path)
        analysis = self.project.analysis(path)
        if analysis is None or analysis.parsed.problems:
            return []
        texts, load = self.project.kept(path)
        known = self._lenses.get(path)
        if known is None or known[0] != texts:
            lines = await asyncio.to_thread(overlaps, analysis.text, path, load)
            known = self._lenses[path] = (texts, lines)
        return known[1]

    # ---------------------------------------------------------------- diagnostics

    def _later(self, path: str, delay_s: float) -> None:
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        self._timers[path] = asyncio.get_running_loop().call_later(delay_s, self._publish, path)

    def _later_others(self, changed: str) -> None:
        """The open files that import the changed one, directly or not."""
        for path in self.project.open:
            if path != changed and changed in self.project.reach(path):
                self._later(path, _OTHERS_S)

    def _publish(self, path: str, *, thorough: bool = False) -> None:
        self._timers.pop(path, None)
        document = self.project.open.get(path)
        known = self.project.analysis(path)
        if document is None or known is None:
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            remarks = diagnose(known, thorough=thorough)
        except Exception as error:  # noqa: BLE001 - whatever is in a text, the server lives on
            self.report_server_error(error, JsonRpcInternalError)
            return
        self._took_s[path] = loop.time() - begun
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=document.uri,
                version=document.version,
                diagnostics=[wire.diagnostic(self.project, document, remark) for remark in remarks],
            )
        )

    def report_server_error(self, error: Exception, source: Any) -> None:  # noqa: ARG002 - pygls' own signature
        """One line on standard error; what a request asked for in vain is in its answer."""
        if not isinstance(error, JsonRpcException) or isinstance(error, JsonRpcInternalError):
            print(f"vega lsp: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _change(change: types.TextDocumentContentChangeEvent) -> TextChange:
    if isinstance(change, types.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return TextChange(change.text, Position(start.line, start.character), Position(end.line, end.character))
    return TextChange(change.text)


# ---------------- Lines above calls that say what they overlap with, from the plan of automatic parallelism


def overlaps(text: str, name: str, load: Load | None = None) -> list[tuple[int, str]]:
    """(line from 1, text) for every call that may run beside others, in order of place. It takes a while for a long
    text, and it changes no shared state, so a thread may ask for it."""
    try:
        from lyra.vega.compiler.compiler import plan_of  # an editor asks for it when the first text is open

        groups = plan_of(text, name, load=load).to_data()["groups"]
    except (ImportError, SourceError):
        return []
    return sorted(
        {
            (int(call["line"]), _text(call, group["calls"]))
            for group in groups
            for call in group["calls"]
            if call["file"] == name
        }
    )


def _text(call: dict[str, Any], group: list[dict[str, Any]]) -> str:
    beside = ["the other turns of its loop"] if call["in_loop"] else []
    for file, line in sorted({(other["file"], other["line"]) for other in group} - {(call["file"], call["line"])}):
        beside.append(f"line {line}" if file == call["file"] else f"{file.rpartition('/')[2]}:{line}")
    return f"overlaps with {', '.join(beside or ['another call of this line'])}"
