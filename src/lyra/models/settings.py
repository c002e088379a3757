"""Settings of a provider: key, address, the time-outs of a call; from the usual environment variables or from a
mapping.

    settings_of("anthropic")                                        ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
    settings_of("here", {"base_url": "http://localhost:8000/v1"})   a server that speaks OpenAI's format

The table of variables is in `lyra.core.providers`. A mapping (`[providers.NAME]` of a configuration) goes before the
variables; a text `env:NAME` in it is a reference. Keys are Secrets: they are read when a call is made, and never
printed. A key never travels over plain HTTP to another machine unless `insecure_http = true` says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from lyra.core.checking.check import FrozenSettings, check_keys, one_of, real
from lyra.core.providers import APIS, COMPATIBLE, SETTINGS, USUAL, Usual, is_loopback
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError


class Timeouts(FrozenSettings, frozen=True):
    """The limits of one model call in seconds: to connect, to the first piece of the answer, between two pieces, and in
    all.

    None is no limit."""

    WORD: ClassVar[str] = "timeouts"

    connect_s: float | None = 10.0
    first_s: float | None = 120.0
    idle_s: float | None = 60.0
    total_s: float | None = 3600.0  # the longest answers are written for half an hour

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None:
                real(value, name, above=0.0)

    @classmethod
    def of(cls, value: Any) -> Timeouts:
        return value if isinstance(value, Timeouts) else cls.from_data(value)


_WRITE: Final = "write https://HOST/…"
_AWS_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")  # botocore reads them
_REGION: Final = re.compile(r"[A-Za-z0-9-]+")  # it becomes part of a host's name


class ProviderSettings(msgspec.Struct, frozen=True):
    """`headers` go with every call, their values hidden like keys. An empty text means: not set."""

    name: str
    api_key: Secret | None = None
    base_url: str = ""
    api: str = ""
    api_version: str = ""
    project: str = ""
    region: str = ""
    timeouts: Timeouts = Timeouts()
    headers: dict[str, Secret] = {}

    def key(self) -> str:
        """Return the key itself, fit for a header; empty when there is none."""
        return _clean(self.api_key.reveal(), f"the key of {self.name}") if self.api_key is not None else ""

    def sent_headers(self) -> dict[str, str]:
        return {name: _clean(value.reveal(), f"the header {name}") for name, value in self.headers.items()}

    def secrets(self) -> tuple[str, ...]:
        """Every value that must be redacted in logs and errors."""
        return tuple(value for value in (self.key(), *self.sent_headers().values()) if value)


def settings_of(
    name: str, given: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> ProviderSettings:
    """Return the settings of one provider; a ConfigError names what is missing and the variable that would hold it."""
    given = {} if given is None else given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"the settings of {name} are a mapping, not {type(given).__name__}",
            hint='write {"api_key": "env:NAME"}',
            key=f"providers.{name}",
        )
    check_keys(given, SETTINGS, f"providers.{name}")
    if env is None:
        import os

        env = os.environ
    usual = USUAL.get(name, COMPATIBLE)
    texts = {
        "base_url": _text(given, "base_url", env, usual.url) or usual.base_url,
        "api_version": _text(given, "api_version", env, usual.api_version),
        "project": _text(given, "project", env, usual.project),
        "region": _text(given, "region", env, usual.region),
    }
    api_key = _key(given, env, usual.key)
    for need in usual.needs:
        if not (api_key if need == "api_key" else texts[need]):
            raise _missing(name, need, usual)
    if texts["region"] and not _REGION.fullmatch(texts["region"]):
        raise ConfigError(f"the region of {name} is a word such as us-east-1", key=f"providers.{name}.region")
    texts["base_url"] = _address(name, texts["base_url"], usual.port)
    headers = _headers(name, given.get("headers", {}), env)
    if texts["base_url"].startswith("http:") and (api_key is not None or headers) and not _insecure(given):
        host = urlsplit(texts["base_url"]).hostname or ""
        if not is_loopback(host):
            raise ConfigError(
                f"the key of {name} would go to {host} unencrypted",
                hint="use https://, or set insecure_http = true where the network is yours",
                key=f"providers.{name}.base_url",
            )
    return ProviderSettings(
        name,
        api_key,
        api=one_of(given["api"], APIS, "api") if "api" in given else "",
        timeouts=_timeouts(given.get("timeouts", {})),
        headers=headers,
        **texts,
    )


def secrets_of(name: str, given: Any, env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the keys that `settings_of` would find, for redaction: wrong or missing settings are ignored."""
    if env is None:
        import os

        env = os.environ
    settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    headers = settings.get("headers")
    told = [settings.get("api_key"), *(headers.values() if isinstance(headers, Mapping) else ())]
    usual = (*USUAL.get(name, COMPATIBLE).key, *_AWS_SECRETS * (name == "bedrock"))
    revealed = [_reveal(value, env) for value in told]
    return tuple(text for text in (*revealed, *(env.get(variable, "").strip() for variable in usual)) if text)


def _reveal(value: Any, env: Mapping[str, str]) -> str:
    try:
        secret = Secret.parse(value, env=env) if isinstance(value, str) else value
        return secret.reveal().strip() if isinstance(secret, Secret) else ""
    except ConfigError:
        return ""


def _text(given: Mapping[str, Any], key: str, env: Mapping[str, str], variables: tuple[str, ...]) -> str:
    if key in given:
        value = given[key]
        if not isinstance(value, str):
            raise ConfigError(f"{key} is text, not {type(value).__name__}", key=key)
        return Secret.parse(value, env=env).reveal().strip() if value.startswith("env:") else value.strip()
    return next((env[name].strip() for name in variables if env.get(name, "").strip()), "")


def _key(given: Mapping[str, Any], env: Mapping[str, str], variables: tuple[str, ...]) -> Secret | None:
    value = given.get("api_key")
    if isinstance(value, Secret):
        return value
    if value is not None and not isinstance(value, str):
        raise ConfigError("api_key is text such as env:NAME", key="api_key")
    if value:
        secret = Secret.parse(value, env=env)
        secret.reveal()  # raises now, with the name, if the variable is not set
        return secret
    return next((Secret.parse(f"env:{name}", env=env) for name in variables if env.get(name, "").strip()), None)


def _missing(name: str, need: str, usual: Usual) -> ConfigError:
    variables = {"api_key": usual.key, "base_url": usual.url, "project": usual.project}[need]
    what = {"api_key": "key", "base_url": "base URL", "project": "project"}[need]
    ways = [*(f"export {variable}=…" for variable in variables[:1]), f"set providers.{name}.{need}"]
    return ConfigError(
        f"there is no {what} for {name}" + (f": {variables[0]} is not set" if variables else ""),
        hint=" or ".join(ways),
        key=f"providers.{name}.{need}",
        variable=variables[0] if variables else "",
    )


def _address(name: str, url: str, port: int) -> str:
    """Return a base URL without a slash at its end; a provider with a `port` may be written as host or host:port."""
    if not url:
        return ""
    key = f"providers.{name}.base_url"
    try:
        if port and "://" not in url:
            place, slash, path = url.partition("/")
            if place.count(":") > 1 and not place.startswith("["):
                place = f"[{place}]"  # an address of IPv6 as Ollama takes it
            host = place if urlsplit(f"//{place}").port is not None else f"{place}:{port}"
            if host.startswith((":", "0.0.0.0:")):  # 0.0.0.0 is for listening, not for calling
                host = "127.0.0.1" + host[host.rindex(":") :]
            url = f"http://{host}{slash}{path}"
        parts = urlsplit(url)
        parts.port  # noqa: B018 (reading it is what checks it)
    except ValueError:
        # The URL is not quoted, here and below: a key may have been pasted in its place.
        raise ConfigError(f"the base URL of {name} is not a URL", hint=_WRITE, key=key) from None
    if parts.username or parts.password:
        raise ConfigError(
            f"the base URL of {name} holds a password", hint="use api_key or headers, which are never shown", key=key
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the base URL of {name} is not a URL", hint=_WRITE, key=key)
    if parts.query or parts.fragment:
        raise ConfigError(f"the base URL of {name} ends with its path, without '?' or '#'", key=key)
    return url.rstrip("/")


def _insecure(given: Mapping[str, Any]) -> bool:
    value = given.get("insecure_http", False)
    if not isinstance(value, bool):
        raise ConfigError(f"insecure_http is true or false, not {type(value).__name__}", key="insecure_http")
    return value


def _headers(name: str, given: Any, env: Mapping[str, str]) -> dict[str, Secret]:
    if not isinstance(given, Mapping) or not all(isinstance(value, str | Secret) for value in given.values()):
        raise ConfigError("headers is a mapping of names to texts", key=f"providers.{name}.headers")
    return {
        str(key).lower(): value if isinstance(value, Secret) else Secret.parse(value, env=env)
        for key, value in given.items()
    }


def _timeouts(given: Any) -> Timeouts:
    if isinstance(given, Timeouts):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError("timeouts is a mapping of connect_s, first_s, idle_s and total_s", key="timeouts")
    check_keys(given, Timeouts.__struct_fields__, "timeouts")
    return Timeouts(**{key: None if value is None else real(value, key, above=0.0) for key, value in given.items()})


def _clean(value: str, what: str) -> str:
    """Return the value, if it fits in a header. The HTTP library would quote a key with a line break in its error."""
    text = value.strip()
    if not text.isascii() or not text.isprintable():
        raise ConfigError(f"{what} has characters that no header can hold", hint="was it pasted whole, and only it?")
    return text
