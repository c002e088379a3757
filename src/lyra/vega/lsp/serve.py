"""`vega lsp`: the language server on standard input and output. Nothing but the protocol goes to standard output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import BinaryIO, Final

from lyra.core.imported_node import NodeFile
from lyra.vega.lsp.features import register
from lyra.vega.lsp.server import VegaLanguageServer

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
