"""Settings of one MCP server: how it is started or reached, what it may access, and where they come from.

A `ServerSettings` comes from `[mcp.servers.NAME]` in lyra.toml or from a project's `.mcp.json` (the file that other
programs read too). Values that may be secrets are kept as references and looked up when the server is started. A
consent is for a `fingerprint`: it changes with anything that is run, sent or opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from lyra.config.files import read_bytes
from lyra.config.servers import check_server, check_server_name, read_cell
from lyra.config.tables import TABLES, UNSPOKEN, TableCell
from lyra.config.trust import FolderTrust
from lyra.config.values import SettingSource, shape
from lyra.core.checking.document import Places, parse, place_of, text_of
from lyra.core.secrets.secret import MASK, Secret, is_reference
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError

TIMEOUT_S: Final = 60.0
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|pass|auth|credential")


class SettingValue(NamedTuple):
    """A text that may be a secret: as it was written, and a function that reveals the value."""

    written: str
    reveal: Callable[[], str]

    @property
    def is_looked_up(self) -> bool:
        """Whether it was written as a reference to a variable."""
        return is_reference(self.written) or "${" in self.written

    def render(self, name: str) -> str:
        """Return what may be shown: a reference always, a literal unless its name is that of a secret."""
        return MASK if not self.is_looked_up and _SECRET_NAME.search(name) else self.written

    @classmethod
    def from_secret(cls, secret: Secret) -> SettingValue:
        reference = str(secret)
        return cls(reference if is_reference(reference) else secret.reveal(), secret.reveal)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server. `origin` is `user`, `project` or `.mcp.json`; only `user` needs no consent, for the server or for the
    folder (`folder_trusted`)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    cwd: str = ""  # where it is started; by default the project's folder
    env: Mapping[str, SettingValue] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, SettingValue] = field(default_factory=dict)
    auth: Mapping[str, Any] = field(default_factory=dict)
    transport: str = "stdio"
    enabled: bool = True
    timeout_s: float = TIMEOUT_S
    start_s: float | None = None  # to start or reach it and read what it offers; None is the default
    network: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    origin: str = "user"
    place: str = ""
    folder_trusted: bool = False  # the person trusts the project's file that names it, with exactly this content
    fill: Callable[[str], str] = str  # replaces `${NAME}` in a command, an argument or a URL
    broken: str = ""  # why the entry cannot be used; the other fields do not count then
    ignored: tuple[str, ...] = ()  # keys of its entry that Lyra does not know

    @property
    def trusted(self) -> bool:
        """Whether the person wrote the settings, which is the consent."""
        return self.origin == "user"

    @property
    def confined(self) -> bool:
        """Whether it is a program in the sandbox that reaches no host and writes in no folder."""
        return self.transport == "stdio" and not (self.network or self.writable)

    @property
    def auth_kind(self) -> str:
        return str(self.auth.get("kind", "none"))

    @property
    def argv(self) -> list[str]:
        return [self.fill(word) for word in (self.command, *self.args)]

    @property
    def address(self) -> str:
        return self.fill(self.url)

    def start_folder(self, workspace: str) -> str:
        """Return the folder where its program is started: inside the project, with links resolved."""
        folder = os.path.realpath(os.path.join(workspace, self.fill(self.cwd)))
        if folder != workspace and not folder.startswith(f"{workspace.rstrip('/')}/"):
            raise ConfigError(
                f"the cwd of MCP server {self.name} lies outside the project", hint="name a folder in it", key="cwd"
            )
        if not os.path.isdir(folder):
            raise ConfigError(f"the cwd of MCP server {self.name} is not a folder", hint=f"there is no {self.cwd}")
        return folder

    def line(self) -> str:
        """Return the exact command line or URL, as it is written down."""
        return self.url or (shlex.join((self.command, *self.args)) if self.command else "")

    def described(self) -> list[str]:
        """Everything that a person agrees to, one line each."""
        lines = [f"url: {self.url}" if self.url else f"command: {self.line()}"]
        lines += [f"folder: {self.cwd}"] if self.cwd else []
        lines += [f"env: {name}={value.render(name)}" for name, value in self.env.items()]
        lines += [f"header: {name}: {value.render(name)}" for name, value in self.headers.items()]
        if self.auth_kind != "none":
            named = (str(self.auth.get(key, "")) for key in ("token_env", "client_id", "client_secret_env"))
            lines.append(" ".join(("auth:", self.auth_kind, *filter(None, named))))
        for word, values in (("network", self.network), ("reads", self.readable), ("writes", self.writable)):
            lines += [f"{word}: {', '.join(values)}"] if values else []
        return lines

    def secrets(self) -> list[str]:
        """Return the secrets given to the server, to be redacted in its output, results and errors."""
        named = [*self.env.items(), *self.headers.items()]
        reveal = [value.reveal for name, value in named if value.render(name) != value.written or value.is_looked_up]
        words = (word for word in (*self.args, self.url) if "${" in word and _SECRET_NAME.search(word))
        reveal += [partial(self.fill, word) for word in words]
        secrets = [os.environ.get(str(self.auth.get(key, "")), "") for key in ("token_env", "client_secret_env")]
        for reveal_value in reveal:
            with suppress(ConfigError):  # a variable that is not set has nothing to hide
                secrets += dict.fromkeys((reveal_value(), reveal_value().rpartition(" ")[2]))  # `Bearer x`, and x
        return [secret for secret in secrets if secret and not secret.startswith("/")]  # a path is no secret

    def fingerprint(self, workspace: str) -> str:
        """Return the hash that a consent is for. For a project's server it includes the folder: the same command in
        another folder starts another program."""
        facts = [
            *(self.command, self.args, self.url, self.transport, dict(self.auth)),
            *({name: value.written for name, value in values.items()} for values in (self.env, self.headers)),
            *(self.network, self.readable, self.writable),
            "" if self.trusted else workspace,
            *([self.cwd] if self.cwd else []),
        ]
        return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:32]


def settings_of(
    name: str, entry: Mapping[str, Any], *, origin: str, place: str = "", folder_trusted: bool = False
) -> ServerSettings:
    """Return the settings from an entry `[mcp.servers.NAME]`."""
    check_server(f"mcp.servers.{name}", entry)
    if is_reference(entry.get("url", "")):
        raise ConfigError(
            f"the url of MCP server {name} is a reference",
            hint="write the address itself: it is what you agree to",
            place=place,
        )
    values = {
        key: {variable: SettingValue.from_secret(secret) for variable, secret in entry.get(key, {}).items()}
        for key in ("env", "headers")
    }
    transport = entry.get("transport") or ("stdio" if "command" in entry else "http")
    given = {**entry, **values, "transport": transport}
    return ServerSettings(name=name, origin=origin, place=place, folder_trusted=folder_trusted, **given)


# ---------------------------------------------------------------- names of tools
NAME_CHARS_MAX: Final = 64  # the limit of the strictest provider
_SERVER_CHARS_MAX: Final = 24
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_MARK_CHARS: Final = 6


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """Return the part of the name for each server: no `__` in it and no `_` at its ends, so that names are
    unambiguous."""
    keys: dict[str, str] = {}
    for name in names:
        plain = re.sub("__+", "_", _OTHER.sub("_", name)).strip("_") or "server"
        key = plain if len(plain) <= _SERVER_CHARS_MAX else _shorten_with_mark(plain, name, _SERVER_CHARS_MAX)
        keys[name] = key if key not in keys.values() else _shorten_with_mark(plain, name, _SERVER_CHARS_MAX)
    return keys


def tool_names(server: str, names: Iterable[str]) -> dict[str, str]:
    """Return the server's own name of each tool → its name in Lyra."""
    names = list(dict.fromkeys(names))
    prefix = f"mcp__{server}__"
    room = NAME_CHARS_MAX - len(prefix)
    plain = {name: _OTHER.sub("_", name) or "tool" for name in names}
    counts = Counter(plain.values())
    full_names: dict[str, str] = {}
    for name, word in plain.items():
        # A tool whose own name is exactly this keeps it; names that were changed to it get a hash.
        contested = word != name and (word in plain or counts[word] > 1 or _is_bare(word, name))
        full_names[name] = prefix + (_shorten_with_mark(word, name, room) if contested or len(word) > room else word)
    return full_names


def sampling_name(server: str) -> str:
    """Return the name of a server's sampling in permission rules; no tool can have it."""
    return f"mcp_sampling__{server}"


def _is_bare(word: str, name: str) -> bool:
    """Return whether replacing characters changed a name too much: it is not ASCII, or its beginning changed."""
    return not name.isascii() or word.startswith("_") is not name.startswith("_")


def _shorten_with_mark(word: str, name: str, most: int) -> str:
    mark = hashlib.sha256(name.encode()).hexdigest()[:_MARK_CHARS]
    return f"{word[: most - _MARK_CHARS - 1]}_{mark}"


# ---------------------------------------------------------------- project file
FILE_NAME: Final = ".mcp.json"
_ROOT: Final = "mcpServers"
_TRANSPORTS: Final = {"streamable-http": "http", "streamableHttp": "http", "streamable_http": "http", "ws": "websocket"}
_KNOWN: Final = TABLES["mcp.servers"].columns
_UNASKED: Final = re.compile(
    r"(?i)approve|allow|trust|permission"
)  # keys of other programs that allow tools without a question
_NAME_CHARS: Final = 64
_TOLD_MAX: Final = 20  # keys in one warning
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def read_file(folder: str, env: Mapping[str, str], trust: FolderTrust | None = None) -> list[ServerSettings]:
    """Return the servers that the folder's `.mcp.json` names; none without such a file. Where the trust covers its
    content, the person has agreed to them."""
    try:
        data = read_bytes(os.path.join(folder, FILE_NAME), FILE_NAME)
    except LyraError as mistake:
        return _pass_over(mistake, is_told=trust is None or trust.is_whole(folder))
    if data is None:
        return []
    is_trusted = trust is not None and trust.covers(folder, FILE_NAME, data)
    try:
        document, places = parse(text_of(data, FILE_NAME), "json", FILE_NAME)
        servers = _ProjectFile(os.path.abspath(folder), env, places).servers(document)
    except LyraError as mistake:
        return _pass_over(mistake, is_told=trust is None or is_trusted)
    return [replace(server, folder_trusted=True) for server in servers] if is_trusted else servers


def _pass_over(mistake: LyraError, *, is_told: bool) -> list[ServerSettings]:
    """Raise the mistake of a file that is trusted, or where trust plays no part. A file without trust stops nothing: it
    becomes a server that has the reason and never starts."""
    if is_told:
        raise mistake
    place = str(mistake.place or FILE_NAME)
    return [ServerSettings(name=FILE_NAME, origin=FILE_NAME, place=place, broken=f"{place}: {mistake.message}")]


class _ProjectFile:
    def __init__(self, folder: str, env: Mapping[str, str], places: Places) -> None:
        self._source = SettingSource("project", folder, env)
        self._env = env
        self._places = places

    def servers(self, document: Any) -> list[ServerSettings]:
        table = document.get(_ROOT) if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ConfigError(f"{FILE_NAME} has no {_ROOT}", hint=f'such as {{"{_ROOT}": {{…}}}}', place=FILE_NAME)
        servers = [self._server(name, entry) for name, entry in table.items()]
        others = tuple(key for key in document if key != _ROOT)
        if servers and others:  # reported once, with the first server
            servers[0] = replace(servers[0], ignored=(*others, *servers[0].ignored))
        return servers

    def _server(self, name: str, entry: Any) -> ServerSettings:
        """Return the server of one entry; an entry that cannot be used becomes a server that has the reason and never
        starts."""
        path = (_ROOT, name)
        try:
            if not isinstance(entry, dict):
                raise self._mistake(path, f"{name} is a table of settings, not {shape(entry)}")
            check_server_name(name)
            settings = settings_of(name, self._cells(name, entry), origin=FILE_NAME, place=self._place(path))
        except ConfigError as error:
            problem = f"{error.place or self._place(path)}: {error.message}"
            return ServerSettings(
                name=_render_name(name),
                origin=FILE_NAME,
                place=self._place(path),
                broken=f"{problem}: {error.hint}" if error.hint else problem,
                ignored=_others(name, entry),
                enabled=not (isinstance(entry, dict) and entry.get("disabled") is True),
            )
        return replace(
            settings,
            fill=self._fill,
            env=self._reveal_values(settings.env),
            headers=self._reveal_values(settings.headers),
            ignored=_others(name, entry),
        )

    def _cells(self, name: str, entry: dict[str, Any]) -> dict[str, Any]:
        cells: dict[str, Any] = {}
        for key, value in _usual(entry).items():
            where = (_ROOT, name, key)
            if key not in _KNOWN:
                continue
            try:
                cells[key] = self._cell(TableCell("mcp.servers", name, key), value)
            except ConfigError as error:
                raise self._mistake(where, error.message, error.hint) from None
        return cells

    def _cell(self, cell: TableCell, value: Any) -> Any:
        if cell.field == "url" and isinstance(value, str) and _VARIABLE.search(value):
            return value  # checked by the client after the variable is filled in
        if cell.field == "transport" and value in UNSPOKEN:
            return value  # the client gives it the state unsupported_transport
        return read_cell(cell, value, self._source)

    def _reveal_values(self, values: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        return {name: SettingValue(value.written, self._reveal(value)) for name, value in values.items()}

    def _reveal(self, value: SettingValue) -> Callable[[], str]:
        """Return a function that reveals the value. The value of a reference is not searched for variables again."""
        return value.reveal if is_reference(value.written) else partial(self._fill, value.written)

    def _fill(self, text: str) -> str:
        return _VARIABLE.sub(self._variable, text)

    def _variable(self, match: re.Match[str]) -> str:
        value = self._env.get(match[1])
        if value:
            return value
        if match[2] is None:
            raise ConfigError(f"the environment variable {match[1]} is not set", hint=f"export {match[1]}=…")
        return match[2]

    def _place(self, path: tuple[str, ...]) -> str:
        return f"{FILE_NAME}:{place_of(path, self._places)[0]}"

    def _mistake(self, path: tuple[str, ...], message: str, hint: str | None = None) -> ConfigError:
        return ConfigError(message, hint=hint, place=self._place(path), key=".".join(path))


def _usual(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with Lyra's own keys instead of synonyms."""
    usual = {key: value for key, value in entry.items() if key not in ("type", "disabled")}
    if "type" in entry:
        usual["transport"] = _TRANSPORTS.get(str(entry["type"]), entry["type"])
    if "disabled" in entry:  # a value that is not a boolean is kept and reported as a mistake
        disabled = entry["disabled"]
        usual["enabled"] = not disabled if isinstance(disabled, bool) else disabled
    return usual


def _others(name: str, entry: Any) -> tuple[str, ...]:
    """Return the keys of an entry that Lyra does not know."""
    return tuple(f"{name}.{key}" for key in _usual(entry) if key not in _KNOWN) if isinstance(entry, dict) else ()


def _render_name(name: str) -> str:
    return visible(name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}…")


def describe_ignored_keys(servers: Iterable[ServerSettings]) -> str:
    """Return a warning about the ignored keys of the file, on one line; empty if there are none."""
    keys = [_render_name(key) for server in servers for key in server.ignored]
    if not keys:
        return ""
    rules = "; tools are allowed by permission rules alone" if any(map(_UNASKED.search, keys)) else ""
    more = f" and {len(keys) - _TOLD_MAX} more" if len(keys) > _TOLD_MAX else ""
    return f"{FILE_NAME}: passed over: {', '.join(keys[:_TOLD_MAX])}{more}{rules}"
