"""What the server answers: one function a request, and the table that registers them.

Each turns the client's position into an offset, asks the core, and turns the answer into the protocol's types. About a
file that is not open, nothing is said.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final, NamedTuple

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lyra.core.imported_node import NodeFile
from lyra.errors import SourceError
from lyra.vega.format.formatter import format_source
from lyra.vega.lsp import navigation, wire
from lyra.vega.lsp.analysis import Analysis
from lyra.vega.lsp.completion import complete
from lyra.vega.lsp.diagnostics import diagnose, fixes_of
from lyra.vega.lsp.hover import hover, signature_help
from lyra.vega.lsp.navigation import RenameRefused, outline, prepare, rename
from lyra.vega.lsp.project import Document, path_of
from lyra.vega.lsp.server import VegaLanguageServer
from lyra.vega.lsp.tokens import MODIFIERS, TYPES, coloured
from lyra.vega.lsp.wire import REQUEST_FAILED


class _At(NamedTuple):
    """A position in an open file."""

    document: Document
    offset: int

    @property
    def path(self) -> str:
        return self.document.path


def _document(ls: VegaLanguageServer, params: Any) -> Document | None:
    return ls.project.open.get(path_of(params.text_document.uri))


def _cursor(ls: VegaLanguageServer, params: Any) -> _At | None:
    document = _document(ls, params)
    if document is None:
        return None
    return _At(document, document.lines.offset((params.position.line, params.position.character)))


def _find_analysis(ls: VegaLanguageServer, params: Any) -> tuple[Document, Analysis] | None:
    document = _document(ls, params)
    known = ls.project.analysis(document.path) if document is not None else None
    return (document, known) if document is not None and known is not None else None


# ---------------------------------------------------------------- life


def _initialize(ls: VegaLanguageServer, params: types.InitializeParams) -> None:
    ls.begin(params)


def _on_open(ls: VegaLanguageServer, params: types.DidOpenTextDocumentParams) -> None:
    ls.opened(params.text_document)


def _on_change(ls: VegaLanguageServer, params: types.DidChangeTextDocumentParams) -> None:
    ls.changed(params)


def _on_save(ls: VegaLanguageServer, params: types.DidSaveTextDocumentParams) -> None:
    ls.saved(params.text_document.uri)


def _on_close(ls: VegaLanguageServer, params: types.DidCloseTextDocumentParams) -> None:
    ls.closed(params.text_document.uri)


def _files(ls: VegaLanguageServer, _params: types.DidChangeWatchedFilesParams) -> None:
    ls.files_changed()


def _folders(ls: VegaLanguageServer, params: types.DidChangeWorkspaceFoldersParams) -> None:
    ls.folders_changed(params.event)


# ---------------------------------------------------------------- reading


def _hover(ls: VegaLanguageServer, params: types.HoverParams) -> types.Hover | None:
    asked = _cursor(ls, params)
    shown = hover(ls.project, asked.path, asked.offset) if asked is not None else None
    if asked is None or shown is None or not shown.text:
        return None
    content = types.MarkupContent(types.MarkupKind.Markdown, shown.text)
    return types.Hover(content, wire.range_of(asked.document.lines, shown.at, shown.end))


def _definition(ls: VegaLanguageServer, params: types.DefinitionParams) -> types.Location | None:
    asked = _cursor(ls, params)
    place = navigation.definition(ls.project, asked.path, asked.offset) if asked is not None else None
    return wire.location(ls.project, place) if place is not None else None


def _references(ls: VegaLanguageServer, params: types.ReferenceParams) -> list[types.Location]:
    asked = _cursor(ls, params)
    if asked is None:
        return []
    with_declaration = params.context.include_declaration
    places = navigation.references(ls.project, asked.path, asked.offset, with_declaration=with_declaration)
    return [wire.location(ls.project, place) for place in places]


def _highlights(ls: VegaLanguageServer, params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
    asked = _cursor(ls, params)
    places = navigation.highlights(ls.project, asked.path, asked.offset) if asked is not None else []
    return [types.DocumentHighlight(wire.range_of(asked.document.lines, *span)) for span in places if asked is not None]


def _symbols(ls: VegaLanguageServer, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
    opened = _find_analysis(ls, params)
    return [wire.symbol(opened[0].lines, entry) for entry in outline(opened[1])] if opened is not None else []


async def _tokens(ls: VegaLanguageServer, params: types.SemanticTokensParams) -> types.SemanticTokens:
    await ls.rest(path_of(params.text_document.uri))
    opened = _find_analysis(ls, params)
    if opened is None:
        return types.SemanticTokens([])
    document, known = opened
    colours = ls.colours.get(document.path)
    if colours is None or colours[0] is not known:
        colours = ls.colours[document.path] = (known, wire.numbers(document.lines, coloured(known)))
    return types.SemanticTokens(colours[1])


async def _lenses(ls: VegaLanguageServer, params: types.CodeLensParams) -> list[types.CodeLens]:
    document = _document(ls, params)
    remarks = await ls.overlaps(document.path) if document is not None else []
    document = _document(ls, params)
    if document is None:
        return []
    lenses = []
    for line, text in remarks:
        offset = document.lines.start(line - 1)
        lenses.append(types.CodeLens(wire.range_of(document.lines, offset, offset), types.Command(text, "")))
    return lenses


# ---------------------------------------------------------------- writing


def _completion(ls: VegaLanguageServer, params: types.CompletionParams) -> types.CompletionList:
    asked = _cursor(ls, params)
    items = complete(ls.project, asked.path, asked.offset) if asked is not None else []
    can = _snippets(ls)
    return types.CompletionList(is_incomplete=False, items=[wire.completion(item, with_snippets=can) for item in items])


def _snippets(ls: VegaLanguageServer) -> bool:
    document = ls.client_capabilities.text_document
    item = document.completion.completion_item if document is not None and document.completion is not None else None
    return bool(item is not None and item.snippet_support)


def _signature(ls: VegaLanguageServer, params: types.SignatureHelpParams) -> types.SignatureHelp | None:
    asked = _cursor(ls, params)
    signature = signature_help(ls.project, asked.path, asked.offset) if asked is not None else None
    if signature is None:
        return None
    information = types.SignatureInformation(
        label=signature.label,
        documentation=signature.text or None,
        parameters=[types.ParameterInformation(parameter) for parameter in signature.parameters],
    )
    return types.SignatureHelp([information], 0, signature.active)


def _format(ls: VegaLanguageServer, params: types.DocumentFormattingParams) -> list[types.TextEdit]:
    document = _document(ls, params)
    if document is None:
        return []
    return [
        types.TextEdit(wire.range_of(document.lines, offset, end), new) for offset, end, new in formatted(document.text)
    ]


def _prepare(ls: VegaLanguageServer, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
    asked = _cursor(ls, params)
    name_place = prepare(ls.project, asked.path, asked.offset) if asked is not None else None
    if asked is None or name_place is None:
        return None
    place, name = name_place
    return types.PrepareRenamePlaceholder(wire.range_of(asked.document.lines, place.at, place.end), name)


def _rename(ls: VegaLanguageServer, params: types.RenameParams) -> types.WorkspaceEdit | None:
    asked = _cursor(ls, params)
    if asked is None:
        return None
    try:
        places = rename(ls.project, asked.path, asked.offset, params.new_name)
    except RenameRefused as refused:
        raise JsonRpcException(str(refused), REQUEST_FAILED) from None
    changes: dict[str, list[types.TextEdit]] = {}
    for place in places:
        where = wire.location(ls.project, place)
        changes.setdefault(where.uri, []).append(types.TextEdit(where.range, params.new_name))
    return types.WorkspaceEdit(changes=changes)


def _actions(ls: VegaLanguageServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Return what would mend the mistakes in a range."""
    opened = _find_analysis(ls, params)
    if opened is None:
        return []
    document, known = opened
    lines = document.lines
    first = lines.offset((params.range.start.line, params.range.start.character))
    last = lines.offset((params.range.end.line, params.range.end.character))
    actions = []
    for remark in diagnose(known):
        fixes = fixes_of(remark, known.text) if remark.at <= last and remark.end >= first else []
        for fix in fixes:
            edit = types.TextEdit(wire.range_of(lines, fix.at, fix.end), fix.text)
            actions.append(
                types.CodeAction(
                    title=fix.title,
                    kind=types.CodeActionKind.QuickFix,
                    diagnostics=[wire.diagnostic(ls.project, document, remark)],
                    edit=types.WorkspaceEdit(changes={document.uri: [edit]}),
                    is_preferred=len(fixes) == 1,
                )
            )
    return actions


# Request or notification → its options, and who answers.
FEATURES: Final[dict[str, tuple[Any, Callable[[VegaLanguageServer, Any], Any]]]] = {
    types.INITIALIZE: (None, _initialize),
    types.TEXT_DOCUMENT_DID_OPEN: (None, _on_open),
    types.TEXT_DOCUMENT_DID_CHANGE: (None, _on_change),
    types.TEXT_DOCUMENT_DID_SAVE: (types.SaveOptions(include_text=False), _on_save),
    types.TEXT_DOCUMENT_DID_CLOSE: (None, _on_close),
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: (None, _files),
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: (None, _folders),
    types.TEXT_DOCUMENT_HOVER: (None, _hover),
    types.TEXT_DOCUMENT_DEFINITION: (None, _definition),
    types.TEXT_DOCUMENT_REFERENCES: (None, _references),
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: (None, _highlights),
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (None, _symbols),
    types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: (types.SemanticTokensLegend(TYPES, MODIFIERS), _tokens),
    types.TEXT_DOCUMENT_CODE_LENS: (types.CodeLensOptions(), _lenses),
    types.TEXT_DOCUMENT_COMPLETION: (types.CompletionOptions(trigger_characters=[".", ":", '"', "/"]), _completion),
    types.TEXT_DOCUMENT_SIGNATURE_HELP: (types.SignatureHelpOptions(trigger_characters=["(", ","]), _signature),
    types.TEXT_DOCUMENT_FORMATTING: (None, _format),
    types.TEXT_DOCUMENT_PREPARE_RENAME: (None, _prepare),
    types.TEXT_DOCUMENT_RENAME: (types.RenameOptions(prepare_provider=True), _rename),
    types.TEXT_DOCUMENT_CODE_ACTION: (
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
        _actions,
    ),
}


def register(server: VegaLanguageServer) -> None:
    for method, (options, answer) in FEATURES.items():
        server.feature(method, options)(answer)


# ---------------------------------------------------------------- serve
# `vega lsp`: the language server on standard input and output. Nothing but the protocol goes to standard output.

_FRAMES_MAX: Final = 5_000  # the parser allows 200 levels, and a walk over the tree takes up to six frames for each


def serve(
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    *,
    read_node: Callable[[str, str], NodeFile] | None = None,
) -> int:
    """Answer the client until it sends `exit` or goes away; 0 if it sent `shutdown` before, as the protocol has it."""
    stdin, stdout = stdin or sys.stdin.buffer, stdout or sys.stdout.buffer
    sys.stdout = sys.stderr  # a stray print must not get between two messages
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # errors are told once, by `report_server_error`
    sys.setrecursionlimit(_FRAMES_MAX)
    server = VegaLanguageServer(read_node)
    register(server)
    server.start_io(stdin, stdout)
    return 0 if server.protocol.is_shut_down else 1


# ---------------------------------------------------------------- layout
# A text in its one layout, as the edits an editor makes: only the lines that change, so that the cursor stays put.


def formatted(text: str) -> list[tuple[int, int, str]]:
    """Edits as (from, to, new text): one at most. A text that cannot be read is left as it is, and so are its line
    ends."""
    ends = "\r\n" if "\r\n" in text else "\n"
    try:
        new = format_source(text.removeprefix("\ufeff").replace("\r\n", "\n")).replace("\n", ends)
    except SourceError:
        return []
    if text.startswith("\ufeff"):
        new = "\ufeff" + new
    if new == text:
        return []
    old_lines, new_lines = text.splitlines(keepends=True), new.splitlines(keepends=True)
    first = _common(old_lines, new_lines)
    last = _common(old_lines[first:][::-1], new_lines[first:][::-1])
    offset = sum(map(len, old_lines[:first]))
    end = len(text) - sum(map(len, old_lines[len(old_lines) - last :])) if last else len(text)
    return [(offset, end, "".join(new_lines[first : len(new_lines) - last]))]


def _common(old: list[str], other: list[str]) -> int:
    """Count the lines at the beginning that are equal."""
    count = 0
    for left, right in zip(old, other, strict=False):
        if left != right:
            break
        count += 1
    return count
