"""The audit log: who asked for what, what was decided and why, in a file whose hash chain shows later changes.

    attach_audit(kernel, "audit.jsonl", level="detailed")

`KINDS` says which Events are written at which level and what of them: only the fields that are named there, with known
secrets and texts in the form of a key redacted, and long texts cut in the middle. Records are chained (`chain`), so
that `lyra audit verify` finds a line that was changed, removed, moved or inserted. A file has one writer: a second one
is refused. Each line is handed to the operating system at once and so survives the death of this process; the next
writer removes what a crash has left of a line, and says so in its own record. A record that cannot be written is
counted in the next one that can, and the callback `failed` is called. Each run begins and ends with a record, so that a
run that was cut short can be recognised. A store without such a file has its own audit: what its journal tells of
rights, refusals, limits, questions and answers. Nothing here decides anything.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from lyra import errors
from lyra.core.checking.check import one_of
from lyra.core.event import Event
from lyra.core.ids import Entropy
from lyra.core.own_files import FULL_ERRNOS, add_own_path, make_folder
from lyra.core.secrets.redact import redact_command, redact_data, without_passwords
from lyra.errors import ConfigError, LyraError, StoreError, StoreFull
from lyra.observe.chain import CLOSED, FIRST, GAP, LINE_BYTES_MAX, OPENED, line_of, read_line
from lyra.observe.writers import Attached, Observed, secrets_of

LEVELS: Final[dict[str, str]] = {
    "none": "nothing is written",
    "basic": "what was decided, refused, asked and answered, and what a limit stopped",
    "detailed": "also each tool call and each process that began or ended, and longer texts",
}
_HINT: Final = "name a file, or a folder, that this user may write to"
_LOST: Final = "nothing is done that is not written down: make room, or name another file"
_TEXT_CHARS_MAX: Final = {"basic": 300, "detailed": 4_000}  # of one text
_SUBJECT_CHARS_MAX: Final = 8_000  # of the subject of a decision, at every level: readers look for it first
_ITEMS_MAX: Final = 50  # of one list or mapping
_READ_CHARS_MAX: Final = 200_000  # of a text are searched for secrets; far more than is ever shown
_DEPTH_MAX: Final = 6
_FIRST_RECORD: Final = re.compile(rb'\{"seq":1,"at":[0-9.e+-]*')
_OPENED: Final = b',"pid":"","kind":"audit.opened","fields":{"level":"'


class AuditedKind(NamedTuple):
    """The lowest level at which an Event is written, and which of its fields are."""

    level: str
    fields: tuple[str, ...]


_QUESTION: Final = ("id", "kind", "question", "message")
_ANSWER: Final = ("id", "kind", "response", "user_id", "reason")
KINDS: Final[dict[str, AuditedKind]] = {
    "tool.decided": AuditedKind("basic", ("tool", "subject", "decision", "rule", "reason", "source", "tainted")),
    "tool.refused": AuditedKind("basic", ("tool", "subject", "code", "reason")),
    "capability.denied": AuditedKind("basic", ("effect", "error")),
    "interrupt.created": AuditedKind("basic", _QUESTION),
    "interrupt.resolved": AuditedKind("basic", _ANSWER),
    "interrupt.expired": AuditedKind("basic", _ANSWER),
    "interrupt.cancelled": AuditedKind("basic", _ANSWER),
    "person.acted": AuditedKind("basic", ("person", "role", "act", "target", "outcome", "user_id")),
    "resource.exceeded": AuditedKind("basic", ("effect", "error", "resource", "used", "limit", "reason", "message")),
    "budget.overrun": AuditedKind("basic", ("effect", "overrun")),
    "tool.called": AuditedKind(
        "detailed", ("agent", "tool", "status", "latency_ms", "trace_id", "span_id", "parent_span")
    ),
    "process.created": AuditedKind("detailed", ("program", "name", "parent", "budget", "grant")),
    "process.terminated": AuditedKind("detailed", ("reason", "error")),
    "kernel.stopping": AuditedKind("detailed", ("reason", "message")),
}


def _no_secrets() -> tuple[str, ...]:
    return ()


class AuditLog:
    """A listener that appends to one file, for as long as it is open."""

    __slots__ = ("_at", "_clock", "_failed", "_fd", "_missed", "_prev", "_secrets", "_seq", "level", "path")

    def __init__(
        self,
        path: str | Path,
        *,
        level: str = "basic",
        now: float = 0.0,
        secrets: Callable[[], Iterable[Any]] = _no_secrets,
        failed: Callable[[StoreError], None] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.path = Path(path)
        self.level = one_of(level, [name for name in LEVELS if name != "none"], "level")
        self._secrets = secrets
        self._failed = failed
        self._missed = 0
        self._at = now
        self._clock = clock
        self._fd = _open_file(self.path)
        try:
            self._seq, self._prev, cut_bytes = _resume(self._fd, self.path)
            os.fchmod(self._fd, 0o600)  # only after the file is known to be an audit log
            opened = {"level": level, "cut_bytes": cut_bytes} if cut_bytes else {"level": level}
            self.write(now, "", OPENED, opened)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of Event that this log subscribes to."""
        return frozenset(kind for kind, row in KINDS.items() if row.level == "basic" or self.level == "detailed")

    @property
    def head(self) -> str:
        """The hash of the last record. Kept elsewhere, it shows later whether the end of the file was cut off."""
        return self._prev

    def __call__(self, event: Event) -> None:
        row = KINDS[event.kind]
        fields = {name: event.data[name] for name in row.fields if event.data.get(name) not in (None, "")}
        try:
            if self._missed:
                self.write(event.time, "", GAP, {"missed": self._missed})
                self._missed = 0
            self.write(event.time, event.pid, event.kind, clean_fields(fields, self.level, tuple(self._secrets())))
        except StoreError as error:
            self._missed += 1
            if self._failed is None:
                raise
            self._failed(error)

    def write(self, time_s: float, pid: str, kind: str, fields: dict[str, Any]) -> None:
        """Append one record as a whole line; where that fails, the file is unchanged and StoreError is raised."""
        if self._fd < 0:
            return
        line, line_hash = line_of(self._seq + 1, time_s, pid, kind, fields, self._prev)
        if len(line) >= LINE_BYTES_MAX:
            line, line_hash = line_of(self._seq + 1, time_s, pid, kind, {"left_out_bytes": len(line)}, self._prev)
        size = os.fstat(self._fd).st_size
        try:
            if os.write(self._fd, line + b"\n") != len(line) + 1:
                os.ftruncate(self._fd, size)
                raise StoreFull(f"there is no room for the audit log {self.path}", hint=_LOST)
        except OSError as error:
            refusal = StoreFull if error.errno in FULL_ERRNOS else StoreError
            raise refusal(f"the audit log {self.path} cannot be written: {error.strerror}", hint=_LOST) from None
        self._seq, self._prev, self._at = self._seq + 1, line_hash, time_s

    async def close(self) -> None:
        """Write the last record and close the file. Without room for that record, the run has no end in the log."""
        if self._fd < 0:
            return
        closed_at = self._clock() if self._clock is not None else self._at
        with contextlib.suppress(StoreError):
            self.write(closed_at, "", CLOSED, {"missed": self._missed} if self._missed else {})
        fd, self._fd = self._fd, -1
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def clean_fields(fields: Mapping[str, Any], level: str, secrets: tuple[Any, ...]) -> dict[str, Any]:
    """Fields of a record as they may be shown: without secrets and passwords, and with long texts cut."""
    most = _TEXT_CHARS_MAX[level]
    plain = _to_plain(fields, _READ_CHARS_MAX, _DEPTH_MAX)
    # A question, a reason and a rule quote the command that they are about.
    redacted = {
        name: without_passwords(value) if isinstance(value, str) else value
        for name, value in redact_data(plain, secrets).items()
    }
    cleaned: dict[str, Any] = _to_plain(redacted, most, _DEPTH_MAX)
    subject = plain.get("subject")
    if isinstance(subject, str):
        clean = redact_command(subject, secrets) if plain.get("tool") == "Bash" else redacted["subject"]
        cleaned["subject"] = _to_plain(clean, _SUBJECT_CHARS_MAX, 0)
    return cleaned


class Audited(Observed, Protocol):
    """The part of a kernel that `attach_audit` uses."""

    def abort(self, error: LyraError) -> None: ...


def attach_audit(kernel: Audited, path: str | Path, *, level: str = "basic") -> AuditLog | None:
    """Write this kernel's audit log until the kernel closes; None at level `none`.

    A folder (it exists, or `path` ends with a slash) gets a file for each kernel, so that several can run at once.
    A kernel whose records cannot be written stops, so that nothing happens without a record.
    """
    if one_of(level, LEVELS, "level") == "none":
        return None
    now = kernel.clock.now()
    try:
        file = _in_folder(path, now) if str(path).endswith("/") or Path(path).is_dir() else Path(path)
        # Make the log's folder, and `.lyra` above it. Other missing folders are not made: the path is likely misspelt.
        folder = file.parent
        if folder.parent.name == ".lyra" and folder.parent.parent.is_dir():
            make_folder(folder.parent)
        if folder.parent.is_dir():
            make_folder(folder)
        else:
            folder.mkdir()  # raises the error that names what is missing
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    log = AuditLog(
        file,
        level=level,
        now=now,
        secrets=lambda: secrets_of(kernel),
        failed=kernel.abort,
        clock=kernel.clock.now,
    )
    add_own_path(file, opened=True)
    kernel.parts[f"audit:{file}"] = Attached(kernel.on_event(log, log.kinds), log)
    return log


def _in_folder(path: str | Path, now: float) -> Path:
    return Path(path, f"{int(now)}-{Entropy().text(8)}.jsonl")


def _unwritable(path: str | Path, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)  # ValueError: there is a NUL in the path
    return ConfigError(f"the audit log {path} cannot be opened: {reason}", hint=_HINT, place=str(path))


def _open_file(path: Path) -> int:
    """Open the file for appending and lock it; its content and mode stay as they are."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o600)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"the audit log {path} is not a plain file", place=str(path))
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        busy = isinstance(error, BlockingIOError)
        raise ConfigError(
            f"the audit log {path} " + ("is being written by another" if busy else f"cannot be used: {error.strerror}"),
            hint="give each kernel a file of its own, or name a folder" if busy else None,
            place=str(path),
        ) from None
    except ConfigError:
        os.close(fd)
        raise
    return fd


def _resume(fd: int, path: Path) -> tuple[int, str, int]:
    """Truncate an unfinished last line; gives the last record's number and hash, and the bytes that were cut."""
    size = os.fstat(fd).st_size
    tail = os.pread(fd, 2 * LINE_BYTES_MAX, max(0, size - 2 * LINE_BYTES_MAX))
    whole, newline, rest = tail.rpartition(b"\n")
    if not newline and size:
        whole, rest = b"", tail
    last = read_line(whole.rpartition(b"\n")[2]) if whole else None
    if last is None and (whole or size > LINE_BYTES_MAX or not _begins(rest)):
        raise ConfigError(
            f"{path} does not end with a record, so nothing is written to it",
            hint=f"look at it with: lyra audit verify {path}; and name a new file",
            place=str(path),
        )
    if rest:
        os.ftruncate(fd, size - len(rest))
    return (last.seq, last.hash, len(rest)) if last is not None else (0, FIRST, len(rest))


def _begins(rest: bytes) -> bool:
    """Return whether this may be an unfinished first record. Any other file is left alone instead of being
    truncated."""
    match = _FIRST_RECORD.match(rest)
    if match is None:
        return not rest
    after_time = rest[match.end() :]
    return after_time.startswith(_OPENED) or _OPENED.startswith(after_time)


def _to_plain(value: Any, most: int, depth: int) -> Any:
    """Return the value as JSON data, its texts at most `most` characters long and its nesting at most `depth` deep."""
    if isinstance(value, str):
        # Cut the middle of a long text and put its length and SHA-256 there, so that the text can be recognised.
        text = value.encode("utf-8", "backslashreplace").decode()
        if len(text) <= most:
            return text
        whole = hashlib.sha256(text.encode()).hexdigest()
        return f"{text[: most - most // 4]}… ({len(text)} characters, sha256 {whole}) …{text[-(most // 4) :]}"
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, (Mapping, list, tuple)) and depth > 0:
        if isinstance(value, Mapping):
            pairs = list(value.items())[:_ITEMS_MAX]
            return {_to_plain(str(key), most, 0): _to_plain(item, most, depth - 1) for key, item in pairs}
        return [_to_plain(item, most, depth - 1) for item in value[:_ITEMS_MAX]]
    return f"({type(value).__name__})"


# The audit of a store: what its journal tells of rights, refusals, limits, questions and answers.

_STOPPED: Final = frozenset(
    error.code
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, (errors.Denied, errors.LimitExceeded))
)
_VIEWED_QUESTION: Final = ("id", "kind", "question", "message", "user_id")
_VIEWED_ANSWER: Final = ("id", "status", "response", "reason")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "process.created": ("program", "name", "parent", "budget", "grant"),
    "process.terminated": ("reason", "error"),
    "interrupt.created": _VIEWED_QUESTION,
    "interrupt.resolved": _VIEWED_ANSWER,
    "interrupt.expired": _VIEWED_ANSWER,
    "interrupt.cancelled": _VIEWED_ANSWER,
    "pcb.interrupt_created": _VIEWED_QUESTION,
    "pcb.interrupt_ended": _VIEWED_ANSWER,
    "process.tainted": ("by",),
    "person.acted": ("person", "role", "act", "target", "outcome", "user_id"),
}


class AuditRow(NamedTuple):
    seq: int
    at: float
    pid: str
    kind: str
    fields: dict[str, Any]


def audit_rows(events: Iterable[Event], level: str = "detailed") -> Iterator[AuditRow]:
    """Yield the rows of a journal that an audit is about, oldest first."""
    names: dict[tuple[str, str], str] = {}  # of effects that have begun
    for event in events:
        fields: Mapping[str, Any] | None = None
        if event.kind == "effect.started":
            names[event.pid, str(event.data["key"])] = str(event.data["name"])
        elif event.kind == "effect.finished":
            fields = _describe_stopped(event.data, names.pop((event.pid, str(event.data["key"])), ""))
        elif event.kind in _FIELDS:
            fields = {name: event.data.get(name) for name in _FIELDS[event.kind]}
        if fields is not None:
            shown = {name: value for name, value in fields.items() if value not in (None, "", b"")}
            kind = "effect.stopped" if event.kind == "effect.finished" else event.kind
            yield AuditRow(event.seq, event.time, event.pid, kind, clean_fields(shown, level, ()))


def _describe_stopped(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return an effect that a right or a limit stopped; None for one that was performed."""
    error = data.get("error")
    if not error or error.get("code") not in _STOPPED:
        return None
    return {"effect": data.get("name") or name, "code": error["code"], "reason": error.get("message", "")}
