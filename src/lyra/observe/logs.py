"""Lyra's log: where it goes, in which form, and which Events it tells of.

`configure_logs` gives the logger `lyra` a handler: JSON lines with the trace and the pid of each record, or plain text,
to stderr or a file. `EventLog` is a listener that logs Events at the level that `LEVEL_OF` gives their kind. There are
five levels (`LEVELS`). Records name what happened, to which process and how it ended; the texts of messages, prompts
and results are left out, and known secrets and texts in the form of a key are redacted.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.event import KINDS, Event
from lyra.core.secrets.redact import redact
from lyra.core.tool import caller
from lyra.core.trace_context import enclosing_span
from lyra.errors import ConfigError

TRACE: Final = 5
LEVELS: Final[dict[str, int]] = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
FORMATS: Final = ("text", "json")
_PART: Final = "log"
_TEXT_CHARS_MAX: Final = 2_000
_MESSAGE_CHARS_MAX: Final = 10_000
_LOGGER: Final = "lyra"

_ERRORS: Final = ("store.failed", "store.fenced", "process.diverged", "supervisor.gave_up")
_WARNINGS: Final = (
    *("health.alert", "resource.exceeded", "resource.warning", "capability.denied", "budget.overrun", "budget.cut"),
    *("budget.warning", "message.dropped", "bus.dropped", "child.restarting", "effect.retried", "tool.refused"),
    *("store.full", "store.waiting", "store.unsigned", "cleanup.failed", "snapshot.failed", "tools.problems"),
    *("process.dormant", "interrupt.expired", "vesper.diverged", "vesper.alert", "answer.cut"),
)
_NOTICES: Final = (
    *("agent.began", "agent.answered", "agent.ended", "interrupt.created", "interrupt.resolved"),
    *("interrupt.cancelled", "pipeline.initialized", "pipeline.ended", "session.turn_began", "session.turn_ended"),
    *("kernel.stopping", "service.registered", "service.unregistered", "service.health_changed", "run.began"),
    *("run.ended", "task.began", "task.ended", "vesper.mode"),
)
_DETAILS: Final = (
    *("model.called", "tool.called", "tool.decided", "process.created", "process.terminated", "pipeline.started"),
    *("pipeline.reported", "pipeline.waiting", "pipeline.resumed", "context.cut", "vesper.executed", "trace.span"),
)
LEVEL_OF: Final[dict[str, str]] = {
    **dict.fromkeys(KINDS, "trace"),
    **dict.fromkeys(_DETAILS, "debug"),
    **dict.fromkeys(_NOTICES, "info"),
    **dict.fromkeys(_WARNINGS, "warn"),
    **dict.fromkeys(_ERRORS, "error"),
}
# Fields of Events that are logged where they are short words or numbers. None of them has text of a user.
_FIELDS: Final = (
    *("agent", "model", "tool", "status", "latency_ms", "input_tokens", "output_tokens", "cost_usd", "retries"),
    *("trace_id", "span_id", "parent_span", "effect", "program", "name", "state", "old_state", "new_state", "code"),
    *("error", "kind", "id", "decision", "rule", "pipeline", "agent_name", "success", "node", "mode", "resource"),
    *("used", "limit", "service_name", "status", "reason", "severity", "condition", "model_calls", "tool_calls"),
)


def log_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a record says, redacted: time, level, logger, message, and the trace and pid that it belongs to."""
    message = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:
        message += f": {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": _word(record.levelno),
        "logger": record.name,
        "message": redact(message[:_MESSAGE_CHARS_MAX], _secrets()),
    }
    span = enclosing_span()
    if span is not None:
        fields["trace_id"], fields["span_id"] = span.trace_id, span.span_id
    pid = getattr(record, "pid", "") or caller.get()
    if pid:
        fields["pid"] = pid
    return fields | getattr(record, "lyra_fields", {})


def _word(number: int) -> str:
    return next((word for word, level in LEVELS.items() if number >= level), "trace")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return msgspec.json.encode(log_fields(record)).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = log_fields(record)
        head = [fields.pop(name) for name in ("time", "level", "logger", "message")]
        more = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{head[0]} {head[1].upper():<5} {head[2]}: {head[3]}{more}"


_configured: list[logging.Handler] = []
_known_secrets: list[Callable[[], Iterable[Any]]] = []


def _secrets() -> tuple[Any, ...]:
    return tuple(secret for source in _known_secrets for secret in source())


def configure_logs(level: str = "warn", form: str = "text", file: str | Path | None = None) -> None:
    """Send the log to stderr or to a file, from a level on; called again, it replaces what was set before."""
    number = LEVELS[one_of(level, LEVELS, "log level")]
    formatter = _JsonFormatter() if one_of(form, FORMATS, "log format") == "json" else _TextFormatter()
    try:
        handler = logging.StreamHandler(sys.stderr) if file is None else _file_handler(Path(file))
    except OSError as error:
        raise ConfigError(f"the log {file} cannot be written: {error.strerror or error}", key="log.file") from None
    handler.setFormatter(formatter)
    logging.addLevelName(TRACE, "TRACE")
    logger = logging.getLogger(_LOGGER)
    for before in _configured:
        logger.removeHandler(before)
        before.close()
    _configured[:] = [handler]
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False  # an application's own handlers would print each record again


def _file_handler(path: Path) -> logging.Handler:
    """Return a file of this user alone that is appended to; a link in its place is refused."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return _FileHandler(os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace"))


class _FileHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers alone
    def close(self) -> None:
        self.stream.close()
        super().close()


class EventLog:
    """A listener that logs Events of a level and above."""

    __slots__ = ("_log", "kinds")

    def __init__(self, level: str) -> None:
        lowest = LEVELS[one_of(level, LEVELS, "log level")]
        self._log = logging.getLogger(f"{_LOGGER}.events")
        self.kinds = frozenset(kind for kind, word in LEVEL_OF.items() if LEVELS[word] >= lowest)

    def __call__(self, event: Event) -> None:
        level = LEVELS[LEVEL_OF[event.kind]]
        if not self._log.isEnabledFor(level):
            return
        fields = _fields_of(event.data)
        if event.pid:
            fields["pid"] = event.pid
        record = self._log.makeRecord(
            self._log.name, level, "", 0, "%s", (event.kind,), None, extra={"lyra_fields": fields}
        )
        record.created = event.time or record.created
        self._log.handle(record)


def _fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        value = data.get(name)
        if isinstance(value, (bool, int, float)):
            fields[name] = value
        elif isinstance(value, str) and value:
            fields[name] = redact(value[:_TEXT_CHARS_MAX], _secrets())
    return fields


class Logged(Protocol):
    """The part of a kernel that `attach_log` uses."""

    parts: dict[str, Any]

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


class _AttachedLog:
    __slots__ = ("_secrets", "_stop")

    def __init__(self, stop: Callable[[], None], secrets: Callable[[], Iterable[Any]]) -> None:
        self._stop = stop
        self._secrets = secrets

    async def close(self) -> None:
        self._stop()
        if self._secrets in _known_secrets:
            _known_secrets.remove(self._secrets)


def attach_log(kernel: Logged, secrets: Callable[[], Iterable[Any]] = tuple) -> None:
    """Log the Events of a kernel, from the level on that `configure_logs` was given; nothing where it was not called,
    and nothing for a second call. `secrets` gives texts to redact besides those in the form of a key."""
    if not _configured or _PART in kernel.parts:
        return
    number = logging.getLogger(_LOGGER).getEffectiveLevel()
    log = EventLog(_word(number))
    _known_secrets.append(secrets)
    kernel.parts[_PART] = _AttachedLog(kernel.on_event(log, log.kinds), secrets)
