"""Settings of one MCP server: how it is started or reached, what it may access, and where they come from.

A `ServerSettings` comes from `[mcp.servers.NAME]` in lyra.toml or from a project's `.mcp.json`
(`client.project_file`). Values that may be secrets are kept as references and looked up when the server is started. A
consent is for a `fingerprint`: it changes with anything that is run, sent or opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from lyra.config.servers import check_server
from lyra.core.secrets.secret import MASK, Secret, is_reference
from lyra.errors import ConfigError

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

    def shown(self, name: str) -> str:
        """What may be shown: a reference always, a literal unless its name is that of a secret."""
        return MASK if not self.is_looked_up and _SECRET_NAME.search(name) else self.written

    @classmethod
    def of(cls, secret: Secret) -> SettingValue:
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
        """The folder where its program is started: inside the project, with links resolved."""
        folder = os.path.realpath(os.path.join(workspace, self.fill(self.cwd)))
        if folder != workspace and not folder.startswith(f"{workspace.rstrip('/')}/"):
            raise ConfigError(
                f"the cwd of MCP server {self.name} lies outside the project", hint="name a folder in it", key="cwd"
            )
        if not os.path.isdir(folder):
            raise ConfigError(f"the cwd of MCP server {self.name} is not a folder", hint=f"there is no {self.cwd}")
        return folder

    def line(self) -> str:
        """The exact command line or URL, as it is written down."""
        return self.url or (shlex.join((self.command, *self.args)) if self.command else "")

    def described(self) -> list[str]:
        """Everything that a person agrees to, one line each."""
        lines = [f"url: {self.url}" if self.url else f"command: {self.line()}"]
        lines += [f"folder: {self.cwd}"] if self.cwd else []
        lines += [f"env: {name}={value.shown(name)}" for name, value in self.env.items()]
        lines += [f"header: {name}: {value.shown(name)}" for name, value in self.headers.items()]
        if self.auth_kind != "none":
            named = (str(self.auth.get(key, "")) for key in ("token_env", "client_id", "client_secret_env"))
            lines.append(" ".join(("auth:", self.auth_kind, *filter(None, named))))
        for word, values in (("network", self.network), ("reads", self.readable), ("writes", self.writable)):
            lines += [f"{word}: {', '.join(values)}"] if values else []
        return lines

    def secrets(self) -> list[str]:
        """The secrets given to the server, to be redacted in its output, results and errors."""
        named = [*self.env.items(), *self.headers.items()]
        reveal = [value.reveal for name, value in named if value.shown(name) != value.written or value.is_looked_up]
        words = (word for word in (*self.args, self.url) if "${" in word and _SECRET_NAME.search(word))
        reveal += [partial(self.fill, word) for word in words]
        secrets = [os.environ.get(str(self.auth.get(key, "")), "") for key in ("token_env", "client_secret_env")]
        for reveal_value in reveal:
            with suppress(ConfigError):  # a variable that is not set has nothing to hide
                secrets += dict.fromkeys((reveal_value(), reveal_value().rpartition(" ")[2]))  # `Bearer x`, and x
        return [secret for secret in secrets if secret and not secret.startswith("/")]  # a path is no secret

    def fingerprint(self, workspace: str) -> str:
        """The hash that a consent is for. For a project's server it includes the folder: the same command in another
        folder starts another program."""
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
    """The settings from an entry `[mcp.servers.NAME]`."""
    check_server(f"mcp.servers.{name}", entry)
    if is_reference(entry.get("url", "")):
        raise ConfigError(
            f"the url of MCP server {name} is a reference",
            hint="write the address itself: it is what you agree to",
            place=place,
        )
    values = {
        key: {variable: SettingValue.of(secret) for variable, secret in entry.get(key, {}).items()}
        for key in ("env", "headers")
    }
    transport = entry.get("transport") or ("stdio" if "command" in entry else "http")
    given = {**entry, **values, "transport": transport}
    return ServerSettings(name=name, origin=origin, place=place, folder_trusted=folder_trusted, **given)
