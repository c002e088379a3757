"""From plain data to the types of the protocol (positions, ranges, remarks), and the protocol as pygls speaks it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

from lyra.lsp.language import Coloured, Elsewhere, Item, Language, OutlineEntry, Remark
from lyra.lsp.texts import Document, LineOffsets, OpenTexts, Place

_SEVERITIES: Final = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
_SYMBOLS: Final[dict[str, types.SymbolKind]] = {
    "agent": types.SymbolKind.Class,
    "supervisor": types.SymbolKind.Class,
    "child": types.SymbolKind.Field,
    "constant": types.SymbolKind.Constant,
    "function": types.SymbolKind.Function,
    "section": types.SymbolKind.Namespace,
    "step": types.SymbolKind.Function,
    "type": types.SymbolKind.Struct,
    "import": types.SymbolKind.Module,
    "test": types.SymbolKind.Event,
    "tool": types.SymbolKind.Method,
    "variable": types.SymbolKind.Variable,
}
_KINDS: Final[dict[str, types.CompletionItemKind]] = {
    "agent": types.CompletionItemKind.Class,
    "supervisor": types.CompletionItemKind.Class,
    "constant": types.CompletionItemKind.Constant,
    "error": types.CompletionItemKind.Class,
    "field": types.CompletionItemKind.Property,
    "file": types.CompletionItemKind.File,
    "function": types.CompletionItemKind.Function,
    "import": types.CompletionItemKind.Module,
    "keyword": types.CompletionItemKind.Keyword,
    "method": types.CompletionItemKind.Method,
    "module": types.CompletionItemKind.Module,
    "parameter": types.CompletionItemKind.Variable,
    "snippet": types.CompletionItemKind.Snippet,
    "tool": types.CompletionItemKind.Function,
    "type": types.CompletionItemKind.TypeParameter,
    "variable": types.CompletionItemKind.Variable,
    "word": types.CompletionItemKind.EnumMember,
}
# What comes first in a list of many: what the program says, then the library, then the language.
_ORDER: Final = {"variable": "0", "parameter": "0", "field": "0", "keyword": "8", "snippet": "9", "module": "3"}


def position(lines: LineOffsets, offset: int) -> types.Position:
    return types.Position(*lines.position(offset))


def range_of(lines: LineOffsets, offset: int, end: int) -> types.Range:
    return types.Range(position(lines, offset), position(lines, end))


def location(texts: OpenTexts, place: Place) -> types.Location:
    return types.Location(texts.uri(place.path), range_of(texts.lines(place.path), place.at, place.end))


def diagnostic(language: Language, document: Document, remark: Remark) -> types.Diagnostic:
    message = f"{remark.message}\nhint: {remark.hint}" if remark.hint else remark.message
    there = [_make_related(language.texts, elsewhere) for elsewhere in remark.elsewhere]
    return types.Diagnostic(
        range=range_of(document.lines, remark.at, remark.end),
        message=message,
        severity=_SEVERITIES[remark.severity],
        source=language.name,
        tags=[types.DiagnosticTag.Unnecessary] if remark.is_unneeded else None,
        related_information=there or None,
    )


def _make_related(texts: OpenTexts, elsewhere: Elsewhere) -> types.DiagnosticRelatedInformation:
    lines = texts.lines(elsewhere.file)
    offset = lines.start(elsewhere.line - 1) + elsewhere.column - 1
    return types.DiagnosticRelatedInformation(
        location(texts, Place(elsewhere.file, offset, offset + 1)), elsewhere.message
    )


def completion(item: Item, *, with_snippets: bool) -> types.CompletionItem:
    is_snippet = "$" in item.insert
    insert = item.insert if with_snippets or not is_snippet else ""
    return types.CompletionItem(
        label=item.label,
        kind=_KINDS[item.kind],
        detail=item.detail or None,
        documentation=types.MarkupContent(types.MarkupKind.Markdown, item.text) if item.text else None,
        insert_text=insert or None,
        insert_text_format=types.InsertTextFormat.Snippet if insert and is_snippet else None,
        sort_text=_ORDER.get(item.kind, "1") + item.label,
    )


def symbol(lines: LineOffsets, entry: OutlineEntry) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        name=entry.name,
        kind=_SYMBOLS.get(entry.role, types.SymbolKind.Variable),
        range=range_of(lines, entry.at, entry.end),
        selection_range=range_of(lines, entry.name_at, entry.name_end),
        detail=entry.role,
        children=[symbol(lines, child) for child in entry.inside],
    )


def numbers(language: Language, lines: LineOffsets, tokens: list[Coloured]) -> list[int]:
    """Return five numbers for each token, places relative to the one before: how the protocol packs them."""
    packed: list[int] = []
    last_line = last_start = 0
    for token in tokens:
        line, start = lines.position(token.at)
        length = lines.units(token.at, token.at + token.length)
        bits = sum(1 << language.colour_modifiers.index(name) for name in token.modifiers)
        packed += (line - last_line, start - last_start if line == last_line else start, length)
        packed += (language.colour_types.index(token.type), bits)
        last_line, last_start = line, start
    return packed


# A request that cannot be understood is answered with an error; one before `initialize` or after `shutdown` is refused
# with its own code. Texts are kept by `texts`, so pygls keeps none.

REQUEST_FAILED = -32803  # the request was understood, and cannot be done


class Protocol(LanguageServerProtocol):
    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "method" in data and isinstance(data.get("id"), (int, str)):
                wrong = JsonRpcInvalidParams(f"these are no parameters of {data['method']}")
                self._send_response(data["id"], error=wrong.to_response_error())
            raise error from None

    def handle_message(self, message: Any) -> None:
        method, id_ = getattr(message, "method", None), getattr(message, "id", None)
        refusal: JsonRpcException | None = None
        if self._shutdown and method != types.EXIT:
            refusal = JsonRpcInvalidRequest("the server is shutting down")
        elif self._workspace is None and method not in (types.INITIALIZE, types.EXIT):
            refusal = JsonRpcServerNotInitialized("the first request is initialize")
        elif self._workspace is not None and method == types.INITIALIZE:
            refusal = JsonRpcInvalidRequest("the server is initialized already")
        if refusal is None:
            super().handle_message(message)
        elif method is not None and id_ is not None:  # a notification is dropped
            self._send_response(id_, error=refusal.to_response_error())

    def _send_data(self, data: Any) -> None:
        """Send data. A client that reads no more is about to be gone: its end of our input says so, and ends us."""
        with suppress(BrokenPipeError):
            super()._send_data(data)

    @property
    def is_shut_down(self) -> bool:
        """Whether the client said that it is done."""
        return bool(self._shutdown)

    # What pygls would keep a second copy of:

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None
