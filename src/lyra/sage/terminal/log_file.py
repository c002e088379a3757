"""Log lines of an interactive session go to a file, never to its terminal, whose screen they would tear apart.

`logs_to_file` holds from before the session is opened until it is closed. Warnings of Python and of the event loop are
among them. The file (LOG_FILE) is in the user's data folder, private, and begun anew when it has grown large.
Well-known keys are masked in it. Where it cannot be written, log lines are dropped. What was logged about the session's
store while it was opened (that it is not signed with the user's key) is for the user: `about_stores` has it.

It stands alone so that logging is set up before the terminal is imported.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import data_folder

LOG_FILE: Final = "sage.log"
_BYTES_MAX: Final = 1024 * 1024
_STORES: Final = "lease"  # the kernel's module that opens a store
_FORM: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


@contextmanager
def logs_to_file(path: Path | None = None) -> Iterator[LogFile]:
    """Write what is logged inside the block to a file."""
    handler = LogFile(path or data_folder() / LOG_FILE)
    handler.setFormatter(logging.Formatter(_FORM))
    root, own = logging.getLogger(), logging.getLogger("lyra")
    others, root.handlers = root.handlers, [handler]
    own_before = (own.handlers, own.propagate)
    if any(_is_on_terminal(other) for other in own.handlers):  # --log-level, without its own file
        own.handlers, own.propagate = [other for other in own.handlers if not _is_on_terminal(other)], True
    logging.captureWarnings(True)
    try:
        yield handler
    finally:
        logging.captureWarnings(False)
        root.handlers = others
        own.handlers, own.propagate = own_before
        handler.close()


def _is_on_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr


class LogFile(logging.Handler):
    """Opens the file with the first line, since most sessions log nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.about_stores: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = visible(redact(self.format(record)))
            if record.module == _STORES:
                self.about_stores.append(visible(redact(record.getMessage())))
            make_folder(self._path.parent, private=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self._path, flags, 0o600), "a", encoding="utf-8", errors="replace") as file:
                if file.tell() > _BYTES_MAX:
                    file.truncate(0)
                file.write(f"{line}\n")
        except (OSError, ValueError, TypeError):  # a full disk, or a message that does not fit its arguments
            return
