"""The Language Server Protocol as pygls speaks it, with what a rude or broken client needs.

A request that cannot be understood is answered with an error, not with silence; one before `initialize` or after
`shutdown` is refused with the code the protocol has for that. Texts are kept by `project`, so pygls keeps none.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import LanguageServerProtocol
from pygls.protocol.language_server import lsp_method

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
        """A client that reads no more is about to be gone: its end of our input says so, and ends us."""
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
