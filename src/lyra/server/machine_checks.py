"""Which optional features work on this machine, and how to install the others: the checks of `lyra doctor`.

Each check is one function that tries the thing itself where it can (a write-ahead log in a temporary folder, an import)
and gives one `Finding`. `missing` is something optional that is not there; `problem` is something needed that does not
work. Changes nothing: it does not create the configured store, open a lease or touch a settings file. Blocks while it
tries; a server calls it in a thread.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lyra._version import __version__
from lyra.core.secrets.secret import mask_url
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.config import Config


_PYTHON_LEAST: Final = (3, 11)
_SQLITE_LEAST: Final = (3, 35, 0)
_SQLITE_HEADER: Final = b"SQLite format 3\0"
_CLOCK_LEAST: Final = 1_735_689_600.0  # 1 January 2025: a clock before this was never set
_CONNECT_S: Final = 3
_CORRECT_IT: Final = "correct it; `lyra config keys` lists every key"
# Extra → the module that shows it works, and what it is good for.
_EXTRAS: Final = {
    "postgres": ("psycopg", "PostgreSQL stores"),
    "uvloop": ("uvloop", "a quicker event loop"),
    "vertex": ("google.auth", "Gemini on Google's Vertex"),
    "bedrock": ("botocore", "models on Amazon Bedrock"),
    "mcp": ("mcp_types", "MCP servers"),
    "lsp": ("pygls", "Vega in editors"),
    "native": ("llvmlite", "machine code for Vega's functions of numbers"),
    "otel": ("opentelemetry.sdk.trace", "traces, metrics and logs for OpenTelemetry"),
}


class Finding(NamedTuple):
    """What one check came to, and how to get what is missing."""

    name: str
    state: Literal["ok", "missing", "problem"]
    detail: str
    how: str = ""


def machine_findings(config: Config | ConfigError | None, *, colours: str = "") -> Iterator[Finding]:
    """Yield the checks of this machine. `config` are the settings, or the mistake in them; None where a program made
    its kernel without. `colours` says whether a terminal shows them."""
    yield Finding("lyra", "ok", __version__)
    yield _python()
    for extra, (module, use) in _EXTRAS.items():
        yield _extra(extra, module, use)
    yield _sqlite()
    if isinstance(config, ConfigError):
        yield Finding("config", "problem", _one_line(config), _CORRECT_IT)
    elif config is not None:
        yield _config(config)
        yield _store(config)
    if colours:
        yield Finding("colours", "ok", colours)
    yield _clock()
    yield _sandbox()
    yield _postgres_server()


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _PYTHON_LEAST:
        return Finding("python", "problem", version, "install Python 3.11 or newer")
    return Finding("python", "ok", f"{version} ({sys.executable})")


def _extra(extra: str, module: str, use: str) -> Finding:
    """Importing is the test: a driver whose C library is missing is found but does not import."""
    from importlib import import_module

    how = f"pip install 'lyra-agents[{extra}]'"
    try:
        driver = import_module(module)
    except ImportError as error:
        return Finding(extra, "missing", f"{use}: {error}", how)
    return Finding(extra, "ok", f"{module} {getattr(driver, '__version__', '')}".strip())


def _sqlite() -> Finding:
    import tempfile

    try:
        import sqlite3
    except ImportError as error:
        return Finding("sqlite", "problem", str(error), "use a Python that was built with SQLite")
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info < _SQLITE_LEAST:
        return Finding("sqlite", "problem", version, "install SQLite 3.35 or newer")
    try:
        with tempfile.TemporaryDirectory() as folder:
            connection = sqlite3.connect(os.path.join(folder, "probe.db"))
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute("CREATE TABLE probe (id INTEGER)")
            connection.close()
    except (OSError, sqlite3.Error) as error:
        return Finding("sqlite", "problem", f"{version}: {error}", "set TMPDIR to a folder that can be written")
    if mode != "wal":
        return Finding("sqlite", "problem", f"{version}: no write-ahead log", "use a local disk, not a network folder")
    return Finding("sqlite", "ok", f"{version}, write-ahead log works")


def _config(config: Config) -> Finding:
    """Check the configuration. A mistake in a folder without trust stops no command, and is none the less one."""
    if config.mistakes:
        return Finding("config", "problem", "; ".join(config.mistakes), _CORRECT_IT)
    files = ", ".join(path for _, path in config.files) or "no file: defaults, variables and flags only"
    return Finding("config", "ok", "; ".join([files, *config.notes]))


def _store(config: Config) -> Finding:
    shown = str(config.kernel.store)
    try:
        target = config.kernel.store.reveal()
    except LyraError as error:
        return Finding("store", "problem", f"{shown}: {error}", error.hint or "")
    if target == "memory":
        return Finding("store", "ok", "memory: nothing outlives the kernel")
    if target.startswith(("postgresql://", "postgres://")):
        try:
            import psycopg
        except ImportError:
            return Finding("store", "problem", f"{shown}: psycopg is missing", "pip install 'lyra-agents[postgres]'")
        try:
            address, mark, query = target.partition("?")
            kept = [part for part in query.split("&") if not part.startswith("schema=")]
            psycopg.connect(f"{address}{mark}{'&'.join(kept)}", connect_timeout=_CONNECT_S).close()
        except psycopg.Error as error:
            return Finding(
                "store", "problem", f"{shown}: {mask_url(' '.join(str(error).split()))}", "is the server running?"
            )
        return Finding("store", "ok", f"{shown} answers")
    if "://" in target and not target.startswith("sqlite://"):
        return Finding("store", "problem", f"{shown}: no store speaks this", "use a file path or postgresql://host/db")
    # Look, never open: opening would make a missing file.
    path = target.removeprefix("sqlite://")
    if not os.path.lexists(path):
        folder = os.path.dirname(os.path.abspath(path))
        while not os.path.lexists(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
            return Finding(
                "store",
                "problem",
                f"{path} cannot be made: {folder} cannot be written",
                "choose another kernel.store",
            )
        return Finding("store", "ok", f"{path}: not created yet")
    try:
        with open(path, "rb") as file:
            header = file.read(len(_SQLITE_HEADER))
    except OSError as error:
        return Finding("store", "problem", f"{path}: {error.strerror}", "choose another kernel.store")
    if header != _SQLITE_HEADER:
        return Finding("store", "problem", f"{path} is not a SQLite file", "choose another kernel.store")
    if not os.access(path, os.W_OK) or not os.access(os.path.dirname(path) or ".", os.W_OK):
        return Finding("store", "problem", f"{path} cannot be written", "change its owner or its mode")
    return Finding("store", "ok", f"{path}; `lyra store check` reads all of it")


def _clock() -> Finding:
    from lyra.core.clock import SystemClock

    clock = SystemClock()
    before, now = clock.monotonic(), clock.now()
    if now < _CLOCK_LEAST:
        return Finding(
            "clock",
            "problem",
            f"it is {now:.0f} s since 1970",
            "set the clock; leases and journals depend on it",
        )
    if clock.monotonic() < before:
        return Finding(
            "clock", "problem", "the monotonic clock runs backwards", "look at the machine or its hypervisor"
        )
    return Finding("clock", "ok", "set, and runs forward")


def _sandbox() -> Finding:
    """Every tier is tried with a real command; without one, commands of agents refuse to run."""
    import asyncio

    from lyra.sandbox import examine

    best, *others = asyncio.run(examine())
    if best.works:
        return Finding("sandbox", "ok", f"{best.name} holds: namespaces, mounts, filtered system calls, limits")
    problem = best.problem or ""
    if "for Linux" in problem:
        how = "run Lyra in a Linux container or machine"
    elif "not installed" in problem:
        how = "install the package bubblewrap"
    else:
        how = "let bubblewrap make user namespaces (container settings, AppArmor, sysctl)"
    for tier in others:
        if tier.works:
            holes = "; ".join(hole.removeprefix(f"{tier.name}: ") for hole in tier.holes)
            return Finding("sandbox", "missing", f"{problem}. {tier.name} is used instead; {holes}", how)
    problems = "; ".join(tier.problem or "" for tier in (best, *others))
    return Finding("sandbox", "missing", f"commands of agents refuse to run: {problems}", how)


def _postgres_server() -> Finding:
    """Only Lyra's own tests start a server."""
    import glob

    initdb = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))), None)
    if initdb is None:
        return Finding("postgres server", "missing", "only for Lyra's own tests", "install the package postgresql")
    return Finding("postgres server", "ok", f"{os.path.dirname(initdb)}; only for Lyra's own tests")


def _one_line(error: LyraError) -> str:
    return f"{error.place}: {error.message}" if error.place else error.message
