"""What one MCP server is: how it is started or reached, what it may touch, and whose word that is.

A `ServerSettings` comes from `[mcp.servers.NAME]` in lyra.toml or from a project's `.mcp.json` (`file`). Values that
may be secrets are held behind what is shown of them and looked up when the server is started. `fingerprint` is what a
consent is for: it changes when anything that is run, sent or opened does.
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

__all__ = ["TIMEOUT_S", "ServerSettings", "Value", "settings_of"]

TIMEOUT_S: Final = 60.0
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|pass|auth|credential")


class Value(NamedTuple):
    """A text that may be a secret: as it was written, and how to get at what it stands for."""

    written: str
    reveal: Callable[[], str]

    @property
    def is_looked_up(self) -> bool:
        """Whether it was written as the name of what holds it."""
        return is_reference(self.written) or "${" in self.written

    def shown(self, name: str) -> str:
        """What a person may see of it: a reference always, a literal unless its name says what it is."""
        return MASK if not self.is_looked_up and _SECRET_NAME.search(name) else self.written

    @classmethod
    def of(cls, secret: Secret) -> Value:
        reference = str(secret)
        return cls(reference if is_reference(reference) else secret.reveal(), secret.reveal)


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """One server. `origin` is `user`, `project` or `.mcp.json`; only the first is a consent by itself."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    cwd: str = ""  # where it is started; the project's folder unless said
    env: Mapping[str, Value] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, Value] = field(default_factory=dict)
    auth: Mapping[str, Any] = field(default_factory=dict)
    transport: str = "stdio"
    enabled: bool = True
    timeout_s: float = TIMEOUT_S
    network: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    origin: str = "user"
    place: str = ""
    fill: Callable[[str], str] = str  # what `${NAME}` in a command, an argument or a URL stands for
    broken: str = ""  # why it cannot be used as it is written; nothing else counts then
    ignored: tuple[str, ...] = ()  # what its file says besides and nobody here reads

    @property
    def trusted(self) -> bool:
        """Whether its being written down is the person's own consent."""
        return self.origin == "user"

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
        """Where its program is started: in the project, with all links followed."""
        found = os.path.realpath(os.path.join(workspace, self.fill(self.cwd)))
        if found != workspace and not found.startswith(f"{workspace.rstrip('/')}/"):
            raise ConfigError(
                f"the cwd of MCP server {self.name} lies outside the project", hint="name a folder in it", key="cwd"
            )
        if not os.path.isdir(found):
            raise ConfigError(f"the cwd of MCP server {self.name} is no folder", hint=f"there is no {self.cwd}")
        return found

    def line(self) -> str:
        """The exact command line or URL, as it is written down."""
        return self.url or (shlex.join((self.command, *self.args)) if self.command else "")

    def described(self) -> list[str]:
        """Everything that a person agrees to, a line each."""
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
        """What it was given and nobody else should read: in its last words, in a result, in an error."""
        named = [*self.env.items(), *self.headers.items()]
        reveal = [value.reveal for name, value in named if value.shown(name) != value.written or value.is_looked_up]
        words = (word for word in (*self.args, self.url) if "${" in word and _SECRET_NAME.search(word))
        reveal += [partial(self.fill, word) for word in words]
        found = [os.environ.get(str(self.auth.get(key, "")), "") for key in ("token_env", "client_secret_env")]
        for each in reveal:
            with suppress(ConfigError):  # a variable that is not set has nothing to hide
                found += dict.fromkeys((each(), each().rpartition(" ")[2]))  # `Bearer x`, and x
        return [secret for secret in found if secret and not secret.startswith("/")]  # a path is no secret

    def fingerprint(self, workspace: str) -> str:
        """Of a project's server the folder is a part: the same words in another folder start another program."""
        facts = [
            *(self.command, self.args, self.url, self.transport, dict(self.auth)),
            *({name: value.written for name, value in each.items()} for each in (self.env, self.headers)),
            *(self.network, self.readable, self.writable),
            "" if self.trusted else workspace,
            *([self.cwd] if self.cwd else []),
        ]
        return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:32]


def settings_of(name: str, entry: Mapping[str, Any], *, origin: str, place: str = "") -> ServerSettings:
    """The settings that the cells of a `[mcp.servers.NAME]` come to."""
    check_server(f"mcp.servers.{name}", entry)
    if is_reference(entry.get("url", "")):
        raise ConfigError(
            f"the url of MCP server {name} is a reference",
            hint="write the address itself: it is what you agree to",
            place=place,
        )
    values = {
        key: {each: Value.of(secret) for each, secret in entry.get(key, {}).items()} for key in ("env", "headers")
    }
    transport = entry.get("transport") or ("stdio" if "command" in entry else "http")
    given = {**entry, **values, "transport": transport}
    return ServerSettings(name=name, origin=origin, place=place, **given)
