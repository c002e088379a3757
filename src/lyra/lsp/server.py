"""The language server: it keeps the open texts of an editor and asks a `Language` what to say about them.

Remarks follow each change soon: a change is looked at after a moment in which the next one may come; for a file that
takes long, the moment is as long as the last look took. What may come late (colours, lenses) waits for a pause in
typing, so that remarks about mistakes come first. Below stand the answers, one function a request: each turns the
client's position into an offset, asks the language, and turns the answer into the protocol's types. About a file that
is not open, nothing is said. `serve` runs it all on standard input and output.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final, NamedTuple

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer

from lyra._version import __version__
from lyra.lsp import protocol
from lyra.lsp.language import Language, RenameRefused
from lyra.lsp.protocol import REQUEST_FAILED, Protocol
from lyra.lsp.texts import Document, Position, TextChange, path_of

_MOMENT_S: Final = 0.004  # after a change; most editors send the next one later than this
_MOMENT_S_MAX: Final = 1.0
_QUICK_S: Final = 0.05  # a look that takes no longer needs no longer moment
_REST_S: Final = 0.15  # so long after the last change, typing has paused
_OTHERS_S: Final = 0.25  # files that depend on the changed one can wait


class EditorServer(LanguageServer):
    protocol: Protocol

    def __init__(self, language: Language) -> None:
        super().__init__(language.name, __version__, protocol_cls=Protocol, max_workers=2)
        self.language = language
        self.texts = language.texts
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._took_s: dict[str, float] = {}
        self._changed_s: dict[str, float] = {}
        self._colours: dict[str, tuple[str, list[int]]] = {}  # of which text they are

    # ---------------------------------------------------------------- texts

    def begin(self, params: types.InitializeParams) -> None:
        """Take what the client said at first: its folders. The encoding was chosen by then."""
        folders = [folder.uri for folder in params.workspace_folders or []] or [params.root_uri or ""]
        self.texts.folders = [path_of(uri) for uri in folders if uri.startswith("file:")]
        self.texts.encoding = str(getattr(self.workspace.position_encoding, "value", self.workspace.position_encoding))

    def folders_changed(self, event: types.WorkspaceFoldersChangeEvent) -> None:
        gone = {path_of(folder.uri) for folder in event.removed}
        added = [path_of(folder.uri) for folder in event.added]
        self.texts.folders = [path for path in self.texts.folders if path not in gone] + added

    def open(self, item: types.TextDocumentItem) -> None:
        path = path_of(item.uri)
        self.texts.put(Document(item.uri, path, item.text, version=item.version, encoding=self.texts.encoding))
        self._publish(path, thorough=True)
        self._later_others(path)

    def change(self, params: types.DidChangeTextDocumentParams) -> None:
        path = path_of(params.text_document.uri)
        document = self.texts.open.get(path)
        if document is None:
            return
        for change in params.content_changes:
            document.apply(_change(change))
        document.version = params.text_document.version
        self.texts.forget_derived()
        self._changed_s[path] = asyncio.get_running_loop().time()
        took = self._took_s.get(path, 0.0)
        self._later(path, _MOMENT_S if took <= _QUICK_S else min(took, _MOMENT_S_MAX))
        self._later_others(path)

    def save(self, uri: str) -> None:
        path = path_of(uri)
        if path in self.texts.open:
            self._publish(path, thorough=True)
        self.texts.forget_derived()
        self._later_others(path)

    def close(self, uri: str) -> None:
        path = path_of(uri)
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        self.texts.remove(path)
        self.language.forget(path)
        for known in (self._took_s, self._changed_s, self._colours):
            known.pop(path, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))
        self._later_others(path)

    def files_changed(self) -> None:
        """Look at all open files again: something happened on the disk that the editor watches."""
        self.texts.forget_derived()
        for path in self.texts.open:
            self._later(path, _OTHERS_S)

    # ---------------------------------------------------------------- what may come late

    async def rest(self, path: str) -> None:
        """Wait for a pause in the typing in a file. A client that no longer wants the answer cancels the request."""
        loop = asyncio.get_running_loop()
        while (left_s := self._changed_s.get(path, -_REST_S) + _REST_S - loop.time()) > 0:  # noqa: ASYNC110 - changes
            await asyncio.sleep(left_s)

    def colours(self, document: Document) -> list[int]:
        """Return the colours of a file as the protocol packs them; made once for each text."""
        known = self._colours.get(document.path)
        if known is None or known[0] is not document.text:
            packed = protocol.numbers(self.language, document.lines, self.language.colours(document.path))
            known = self._colours[document.path] = (document.text, packed)
        return known[1]

    # ---------------------------------------------------------------- diagnostics

    def _later(self, path: str, delay_s: float) -> None:
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        self._timers[path] = asyncio.get_running_loop().call_later(delay_s, self._publish, path)

    def _later_others(self, changed: str) -> None:
        """Look later at the open files that depend on the changed one, directly or not."""
        for path in self.texts.open:
            if path != changed and self.language.depends_on(path, changed):
                self._later(path, _OTHERS_S)

    def _publish(self, path: str, *, thorough: bool = False) -> None:
        self._timers.pop(path, None)
        document = self.texts.open.get(path)
        if (
            document is None or self.protocol.is_shut_down
        ):  # a client that is done hears no more; its pipe may be closed
            return
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            remarks = self.language.diagnose(path, thorough=thorough)
        except Exception as error:  # noqa: BLE001 - whatever is in a text, the server lives on
            self.report_server_error(error, JsonRpcInternalError)
            return
        self._took_s[path] = loop.time() - begun
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=document.uri,
                version=document.version,
                diagnostics=[protocol.diagnostic(self.language, document, remark) for remark in remarks],
            )
        )

    def report_server_error(self, error: Exception, source: Any) -> None:  # noqa: ARG002 - pygls' own signature
        """Print one line on standard error; what a request asked for in vain is in its answer."""
        if not isinstance(error, JsonRpcException) or isinstance(error, JsonRpcInternalError):
            print(f"{self.language.name} lsp: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def _change(change: types.TextDocumentContentChangeEvent) -> TextChange:
    if isinstance(change, types.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return TextChange(change.text, Position(start.line, start.character), Position(end.line, end.character))
    return TextChange(change.text)


class _Cursor(NamedTuple):
    """A position in an open file."""

    document: Document
    offset: int

    @property
    def path(self) -> str:
        return self.document.path


def _document(server: EditorServer, params: Any) -> Document | None:
    return server.texts.open.get(path_of(params.text_document.uri))


def _cursor(server: EditorServer, params: Any) -> _Cursor | None:
    document = _document(server, params)
    if document is None:
        return None
    return _Cursor(document, document.lines.offset((params.position.line, params.position.character)))


# ---------------------------------------------------------------- life


def _initialize(server: EditorServer, params: types.InitializeParams) -> None:
    server.begin(params)


def _on_open(server: EditorServer, params: types.DidOpenTextDocumentParams) -> None:
    server.open(params.text_document)


def _on_change(server: EditorServer, params: types.DidChangeTextDocumentParams) -> None:
    server.change(params)


def _on_save(server: EditorServer, params: types.DidSaveTextDocumentParams) -> None:
    server.save(params.text_document.uri)


def _on_close(server: EditorServer, params: types.DidCloseTextDocumentParams) -> None:
    server.close(params.text_document.uri)


def _files(server: EditorServer, _params: types.DidChangeWatchedFilesParams) -> None:
    server.files_changed()


def _folders(server: EditorServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    server.folders_changed(params.event)


# ---------------------------------------------------------------- reading


def _hover(server: EditorServer, params: types.HoverParams) -> types.Hover | None:
    cursor = _cursor(server, params)
    shown = server.language.hover(cursor.path, cursor.offset) if cursor is not None else None
    if cursor is None or shown is None or not shown.text:
        return None
    content = types.MarkupContent(types.MarkupKind.Markdown, shown.text)
    return types.Hover(content, protocol.range_of(cursor.document.lines, shown.at, shown.end))


def _definition(server: EditorServer, params: types.DefinitionParams) -> types.Location | None:
    cursor = _cursor(server, params)
    place = server.language.definition(cursor.path, cursor.offset) if cursor is not None else None
    return protocol.location(server.texts, place) if place is not None else None


def _references(server: EditorServer, params: types.ReferenceParams) -> list[types.Location]:
    cursor = _cursor(server, params)
    if cursor is None:
        return []
    with_declaration = params.context.include_declaration
    places = server.language.references(cursor.path, cursor.offset, with_declaration=with_declaration)
    return [protocol.location(server.texts, place) for place in places]


def _highlights(server: EditorServer, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    cursor = _cursor(server, params)
    if cursor is None:
        return []
    return [
        types.DocumentHighlight(protocol.range_of(cursor.document.lines, place.at, place.end))
        for place in server.language.references(cursor.path, cursor.offset, with_declaration=True)
        if place.path == cursor.path
    ]


def _symbols(server: EditorServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    document = _document(server, params)
    if document is None:
        return []
    return [protocol.symbol(document.lines, entry) for entry in server.language.outline(document.path)]


async def _colours(server: EditorServer, params: types.SemanticTokensParams) -> types.SemanticTokens:
    await server.rest(path_of(params.text_document.uri))
    document = _document(server, params)
    return types.SemanticTokens(server.colours(document) if document is not None else [])


async def _lenses(server: EditorServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    path = path_of(params.text_document.uri)
    await server.rest(path)
    remarks = await server.language.lenses(path) if path in server.texts.open else []
    document = _document(server, params)
    if document is None:
        return []
    lenses = []
    for line, text in remarks:
        offset = document.lines.start(line - 1)
        lenses.append(types.CodeLens(protocol.range_of(document.lines, offset, offset), types.Command(text, "")))
    return lenses


# ---------------------------------------------------------------- writing


def _completion(server: EditorServer, params: types.CompletionParams) -> types.CompletionList:
    cursor = _cursor(server, params)
    items = server.language.complete(cursor.path, cursor.offset) if cursor is not None else []
    document = server.client_capabilities.text_document
    wanted = document.completion.completion_item if document is not None and document.completion is not None else None
    can = bool(wanted is not None and wanted.snippet_support)
    shown = [protocol.completion(item, with_snippets=can) for item in items]
    return types.CompletionList(is_incomplete=False, items=shown)


def _signature(server: EditorServer, params: types.SignatureHelpParams) -> types.SignatureHelp | None:
    cursor = _cursor(server, params)
    signature = server.language.signature_help(cursor.path, cursor.offset) if cursor is not None else None
    if signature is None:
        return None
    information = types.SignatureInformation(
        label=signature.label,
        documentation=signature.text or None,
        parameters=[types.ParameterInformation(parameter) for parameter in signature.parameters],
    )
    return types.SignatureHelp([information], 0, signature.active)


def _format(server: EditorServer, params: types.DocumentFormattingParams) -> list[types.TextEdit]:
    document = _document(server, params)
    if document is None:
        return []
    return [
        types.TextEdit(protocol.range_of(document.lines, offset, end), new)
        for offset, end, new in server.language.format(document.path)
    ]


def _prepare(server: EditorServer, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
    cursor = _cursor(server, params)
    name_place = server.language.find_name(cursor.path, cursor.offset) if cursor is not None else None
    if cursor is None or name_place is None:
        return None
    place, name = name_place
    return types.PrepareRenamePlaceholder(protocol.range_of(cursor.document.lines, place.at, place.end), name)


def _rename(server: EditorServer, params: types.RenameParams) -> types.WorkspaceEdit | None:
    cursor = _cursor(server, params)
    if cursor is None:
        return None
    try:
        places = server.language.rename(cursor.path, cursor.offset, params.new_name)
    except RenameRefused as refused:
        raise JsonRpcException(str(refused), REQUEST_FAILED) from None
    changes: dict[str, list[types.TextEdit]] = {}
    for place in places:
        where = protocol.location(server.texts, place)
        changes.setdefault(where.uri, []).append(types.TextEdit(where.range, params.new_name))
    return types.WorkspaceEdit(changes=changes)


def _actions(server: EditorServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Return what would mend the mistakes in a range."""
    document = _document(server, params)
    if document is None:
        return []
    lines = document.lines
    first = lines.offset((params.range.start.line, params.range.start.character))
    last = lines.offset((params.range.end.line, params.range.end.character))
    actions = []
    for remark in server.language.diagnose(document.path, thorough=False):
        is_there = remark.at <= last and remark.end >= first
        fixes = server.language.fixes(document.path, remark) if is_there else []
        for fix in fixes:
            edit = types.TextEdit(protocol.range_of(lines, fix.at, fix.end), fix.text)
            actions.append(
                types.CodeAction(
                    title=fix.title,
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[protocol.diagnostic(server.language, document, remark)],
                    edit=types.WorkspaceEdit(changes={document.uri: [edit]}),
                    is_preferred=len(fixes) == 1,
                )
            )
    return actions


# ---------------------------------------------------------------- tables

_LIFE: Final[dict[str, tuple[Any, Callable[[EditorServer, Any], Any]]]] = {
    types.INITIALIZE: (None, _initialize),
    types.TEXT_DOCUMENT_DID_OPEN: (None, _on_open),
    types.TEXT_DOCUMENT_DID_CHANGE: (None, _on_change),
    types.TEXT_DOCUMENT_DID_SAVE: (types.SaveOptions(include_text=False), _on_save),
    types.TEXT_DOCUMENT_DID_CLOSE: (None, _on_close),
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (None, _files),
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: (None, _folders),
}

# Request → the method of the language that it needs, and the function that answers.
_REQUESTS: Final[dict[str, tuple[Callable[..., object], Callable[[EditorServer, Any], Any]]]] = {
    types.TEXT_DOCUMENT_HOVER: (Language.hover, _hover),
    types.TEXT_DOCUMENT_DEFINITION: (Language.definition, _definition),
    types.TEXT_DOCUMENT_REFERENCES: (Language.references, _references),
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (Language.references, _highlights),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (Language.outline, _symbols),
    types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: (Language.colours, _colours),
    types.TEXT_DOCUMENT_CODE_LENS: (Language.lenses, _lenses),
    types.TEXT_DOCUMENT_COMPLETION: (Language.complete, _completion),
    types.TEXT_DOCUMENT_SIGNATURE_HELP: (Language.signature_help, _signature),
    types.TEXT_DOCUMENT_FORMATTING: (Language.format, _format),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (Language.find_name, _prepare),
    types.TEXT_DOCUMENT_RENAME: (Language.rename, _rename),
    types.TEXT_DOCUMENT_CODE_ACTION: (Language.fixes, _actions),
}


def server_for(language: Language) -> EditorServer:
    """Return the server of a language, with all requests that the language can answer."""
    server = EditorServer(language)
    options: dict[str, Any] = {
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: types.SemanticTokensLegend(
            language.colour_types, language.colour_modifiers
        ),
        types.TEXT_DOCUMENT_CODE_LENS: types.CodeLensOptions(),
        types.TEXT_DOCUMENT_COMPLETION: types.CompletionOptions(trigger_characters=list(language.triggers)),
        types.TEXT_DOCUMENT_SIGNATURE_HELP: types.SignatureHelpOptions(trigger_characters=["(", ","]),
        types.TEXT_DOCUMENT_RENAME: types.RenameOptions(prepare_provider=True),
        types.TEXT_DOCUMENT_CODE_ACTION: types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
    }
    for method, (life_options, answer) in _LIFE.items():
        server.feature(method, life_options)(answer)
    for method, (needed, answer) in _REQUESTS.items():
        if language.answers(needed):
            server.feature(method, options.get(method))(answer)
    return server


# ---------------------------------------------------------------- serve

_FRAMES_MAX: Final = 5_000  # Vega's parser allows 200 levels, and a walk over the tree takes up to six frames for each


def serve(language: Language, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None) -> int:
    """Answer the client until it sends `exit` or goes away; 0 if it sent `shutdown` before, as the protocol has it.
    Nothing but the protocol goes to standard output."""
    stdin, stdout = stdin or sys.stdin.buffer, stdout or sys.stdout.buffer
    sys.stdout = sys.stderr  # a stray print must not get between two messages
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # errors are told once, by `report_server_error`
    sys.setrecursionlimit(_FRAMES_MAX)
    server = server_for(language)
    server.start_io(stdin, stdout)
    return 0 if server.protocol.is_shut_down else 1
