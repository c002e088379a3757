"""The command doctor, and the checks of Sage's own parts that `sage doctor` shows beside those of the machine.

Each check tries the thing itself where it can, changes nothing but its own probe file, and never shows a key.
`missing` is something optional that is not there, `problem` something needed that does not work.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lyra.config import Config
from lyra.config.asks import folder_asks
from lyra.config.settings import find_model
from lyra.config.trust import trust_for
from lyra.core.clock import SystemClock
from lyra.core.own_files import make_folder
from lyra.core.providers import USUAL
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError
from lyra.models.settings import settings_of
from lyra.sage.commands.figures import sandbox_words
from lyra.sage.commands.result import SlashArguments, SlashResult, table
from lyra.sage.project.rules import rule_asks
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import sessions_folder
from lyra.sage.session.usage_log import UsageLog, local_day
from lyra.sandbox.sandbox import may_work

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession


_UI: Final = ("prompt_toolkit", "rich")


class SageCheck(NamedTuple):
    name: str
    state: Literal["ok", "missing", "problem"]
    detail: str
    how: str = ""


async def doctor(session: LiveSession, arguments: SlashArguments) -> SlashResult:
    arguments.none()
    checks = await asyncio.to_thread(
        lambda: [*sage_checks(session.config, session.folder, session.model, session.root)]
    )
    words = await sandbox_words()
    checks.append(SageCheck("sandbox", "missing" if words.startswith("none") else "ok", words, ""))
    return SlashResult.from_blocks(
        table(("check", "state", "detail", "how to get it"), checks), "`sage doctor` checks more"
    )


def sage_checks(config: Config, folder: str, model: str = "", root: Path | None = None) -> Iterator[SageCheck]:
    """Yield the checks for a session in this folder; `model` is asked instead of the configured one, `root` has
    sessions."""
    yield _model(config, model or find_model(config))
    sessions = root or sessions_folder()
    writable = _writable(sessions)
    yield writable
    if writable.state == "ok":
        yield _index(sessions)
        yield _usage(sessions, config)
    yield _trust(config, folder)
    yield _commands()
    yield _program("git", "state, changes and worktrees of repositories", "install the package git")
    yield _program("rg", "quicker searches", "install the package ripgrep")
    for package in _UI:
        yield _package(package)


def _model(config: Config, name: str) -> SageCheck:
    """Return whether the provider has what a call needs. The key itself is not read here, and never shown."""
    provider, slash, _ = name.partition("/")
    if not slash:
        how = 'say --model PROVIDER/MODEL, or write model = "…" under [agent] in lyra.toml'
        if not name:
            return SageCheck("model", "missing", "no model is named", how)
        return SageCheck("model", "problem", f"{visible(name)} names no provider", how)
    if provider == "sim":
        return SageCheck("model", "ok", f"{visible(name)}: simulated")
    try:
        settings = settings_of(provider, config.providers.get(provider))
    except ConfigError as error:
        return SageCheck("model", "problem", f"{visible(name)}: {error.message}", error.hint or "")
    variables = [variable for variable in USUAL[provider].key if os.environ.get(variable)] if provider in USUAL else []
    key = "without a key" if settings.api_key is None else f"key from {variables[0]}" if variables else "key is set"
    return SageCheck("model", "ok", f"{visible(name)}: {key}")


def _writable(sessions: Path) -> SageCheck:
    try:
        make_folder(sessions, private=True)
        with tempfile.TemporaryFile(dir=sessions) as probe:
            probe.write(b"probe")
    except OSError as error:
        how = "change its owner or mode, or set XDG_DATA_HOME"
        return SageCheck("sessions", "problem", f"{sessions} cannot be written: {error.strerror}", how)
    return SageCheck("sessions", "ok", str(sessions))


def _index(sessions: Path) -> SageCheck:
    try:
        with SessionIndex(sessions) as index:
            index.list(limit=1)
            again = ", made anew from the sessions" if index.rebuilt else ""
    except LyraError as error:
        return SageCheck("index", "problem", error.message, error.hint or "move it away; it is made anew")
    return SageCheck("index", "ok", f"readable{again}")


def _usage(sessions: Path, config: Config) -> SageCheck:
    try:
        with UsageLog(sessions) as log:
            spent = log.sum_cost(day=local_day(SystemClock().now()))
    except LyraError as error:
        return SageCheck("usage", "problem", error.message, error.hint or "")
    limit = config.sage.daily_budget_usd
    return SageCheck("usage", "ok", f"today {spent}" + (f" of {limit}" if limit is not None else ""))


def _trust(config: Config, folder: str) -> SageCheck:
    trust = trust_for(folder, config.trust)
    files = folder_asks(folder, more=rule_asks(folder))
    waiting = [file.shown_name for file in files if file.state(trust) != "trusted"]
    if waiting:
        detail = f"{', '.join(waiting[:5])} can only tighten"
        return SageCheck(
            "trust", "missing", detail, "`sage trust show` says what is asked for, `sage trust add` trusts it"
        )
    return SageCheck("trust", "ok", "trusted" if files else "the folder's files ask for nothing")


def _commands() -> SageCheck:
    """Return what becomes of commands here: without a sandbox a person is asked about each."""
    if may_work():
        return SageCheck("commands", "ok", "run in the sandbox")
    detail = "no sandbox: each is asked about and has all your rights, rules for Bash do not count, and -p runs none"
    return SageCheck("commands", "missing", detail, "use Linux with bubblewrap, or a Linux container")


def _program(name: str, use: str, how: str) -> SageCheck:
    path = shutil.which(name)
    return SageCheck(name, "ok", path) if path else SageCheck(name, "missing", use, how)


def _package(name: str) -> SageCheck:
    try:
        return SageCheck(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return SageCheck(name, "problem", "the terminal needs it", f"pip install {name}")
