"""An error as the end of a call: its status code, one sentence, and the facts in the trailing metadata.

The code comes from the one table of surfaces (`lyra.errors.CODES`). The sentence is the error's own; an unexpected
exception has none, for its text may hold anything: it is logged instead. `lyra-error-bin` has a LyraError as JSON, so
that a client of Lyra's raises the same error. Keys are removed from all of them.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final, NamedTuple

import grpc
import msgspec

from lyra.core.secrets.process_keys import process_keys
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.visible import visible
from lyra.errors import CODES, LyraError, error_to_data

ERROR_KEY: Final = "lyra-error-bin"
_DETAILS_CHARS_MAX: Final = 500
_MESSAGE_CHARS_MAX: Final = 10_000  # looked at, of a longer one
_ERROR_BYTES_MAX: Final = 2_000  # all metadata of a call is held to some kilobytes by most clients
_log: Final = logging.getLogger("lyra.server")


class CallEnd(NamedTuple):
    """How a call that failed is ended."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()


def end_of(error: Exception, method: str) -> CallEnd:
    """The end of a call that raised this error."""
    if not isinstance(error, LyraError):
        _log.error("%s failed unexpectedly\n%s", method, _trace(error))
        return CallEnd(grpc.StatusCode.INTERNAL, "")
    code = grpc.StatusCode[CODES.get(error.code, CODES["lyra"]).grpc]
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        _log.error("%s failed\n%s", method, _trace(error))
    return CallEnd(code, _clipped(error.message), ((ERROR_KEY, _error_bytes(error)),))


def _trace(error: Exception) -> str:
    return redact("".join(traceback.format_exception(error)), process_keys())


def _clipped(message: str) -> str:
    line = visible(redact(" ".join(message[:_MESSAGE_CHARS_MAX].split()), process_keys()))
    short = line if len(line) <= _DETAILS_CHARS_MAX else line[: _DETAILS_CHARS_MAX - 1] + "…"
    return short.encode("utf-8", "replace").decode()


def _error_bytes(error: LyraError) -> bytes:
    data: dict[str, Any] = redact_data(error_to_data(error), process_keys())
    data["message"] = _clipped(error.message)
    for left_out in ("", "fields", "hint", "place"):
        data.pop(left_out, None)
        encoded = _encoded(data)
        if 0 < len(encoded) <= _ERROR_BYTES_MAX:
            return encoded
    return _encoded({"code": error.code})


def _encoded(data: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return b""
