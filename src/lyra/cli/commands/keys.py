"""`lyra keys`: make, list, show and revoke the keys of the gateway.

STORE_OR_URL is a server's address or a store; left out, the configured store. Where a server owns the store, the
command asks it, so that a change counts at once; else it opens the store itself. Without the argument, the one server
that this user runs is asked, of whichever store. Only `create` makes a store that is not there. The keys of a cluster
(its URL, or the setting cluster.store) are asked for at a host on this machine, or at the address of any.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, moment, note, table
from lyra.errors import ConfigError, LyraError, NameTaken, NoSuchProcess, StoreError, Unauthenticated

if TYPE_CHECKING:
    from lyra.server.gateway.keys import KeyTable


_TIMEOUT_S: Final = 30.0
_TOKEN_HINT: Final = "set LYRA_TOKEN to one of the server's tokens"  # noqa: S105 (says where one comes from)
_ERRORS: Final = {400: ConfigError, 404: NoSuchProcess, 409: NameTaken}  # by the status of a server's answer
_target: Final = click.argument("target", required=False, metavar="[STORE_OR_URL]")
_key: Final = click.argument("key", metavar="ID_OR_NAME")


@click.group(cls=CommandGroup)
def keys() -> None:
    """Make, list and revoke the keys with which programs call models through `lyra serve --gateway`."""


@keys.command()
@_target
@click.option("--name", required=True, metavar="NAME", help="By what people know the key; costs are listed under it.")
@click.option("--budget", metavar="AMOUNT", help="What calls with the key may cost in all, such as $5.")
@click.option(
    "--models", multiple=True, metavar="PATTERN", help="Models that it may call, such as openai/*; repeatable."
)
@click.option("--requests-per-minute", type=click.IntRange(min=1), metavar="N", help="More are refused (429).")
@click.option("--user", default="", metavar="USER", help="For whom agents act that are called with the key.")
@click.option("--team", default="", metavar="TEAM", help="A label for its records.")
@click.option("--fallback", multiple=True, metavar="MODEL", help="Asked where a model is down; repeatable, in order.")
@click.option(
    "--cache",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="For how long an answer is given again for the same request; 0: never.",
)
@json_option
@click.pass_obj
def create(
    invocation: Invocation,
    target: str | None,
    *,
    name: str,
    budget: str | None,
    models: tuple[str, ...],
    requests_per_minute: int | None,
    user: str,
    team: str,
    fallback: tuple[str, ...],
    cache: float,
    as_json: bool,
) -> None:
    """Make a key. It is shown once: the store keeps only its hash."""
    body: dict[str, Any] = {
        "name": name,
        "budget": budget,
        "models": [pattern for given in models for pattern in given.split(",") if pattern],
        "requests_per_minute": requests_per_minute,
        "user": user,
        "team": team,
        "fallbacks": list(fallback),
        "cache_s": cache,
    }

    async def make(table: KeyTable) -> dict[str, Any]:
        key_id, key = await table.create(**{**body, "models": tuple(body["models"]), "fallbacks": fallback})
        return {"id": key_id, "key": key}

    if not math.isfinite(cache):  # click takes the words nan and inf for numbers
        raise ConfigError("--cache is a number of seconds", key="--cache")
    created = _ask(invocation, target, ("POST", "/api/keys", body), make, may_make=True)
    if as_json:
        document(created)
    else:
        note(f"the key {name} ({created['id']}); it is not shown again:")
        click.echo(created["key"])


@keys.command("list")
@_target
@json_option
@click.pass_obj
def list_(invocation: Invocation, target: str | None, *, as_json: bool) -> None:
    """List the keys in force, and what each has spent."""

    async def read(table: KeyTable) -> Any:
        return {"keys": [_key_to_json(key) for key in table.all()]}

    rows = _ask(invocation, target, ("GET", "/api/keys", None), read, unmade={"keys": []})["keys"]
    if as_json:
        document(rows)
    elif not rows:
        note("there are no keys: `lyra keys create --name NAME` makes one")
    else:
        shown = [
            (row["id"], row["name"], row["user"] or row["team"] or "-", _dollars(row["spent_micro_usd"]),
             _dollars(row["budget_micro_usd"]), str(row["calls"]), ", ".join(row["models"]) or "all")
            for row in rows
        ]  # fmt: skip
        table(("id", "name", "user or team", "spent", "budget", "calls", "models"), shown)


@keys.command()
@_key
@_target
@json_option
@click.pass_obj
def show(invocation: Invocation, key: str, target: str | None, *, as_json: bool) -> None:
    """Show one key: its limits and what it has spent."""

    async def read(table: KeyTable) -> Any:
        return _key_to_json(await table.get(key))

    row = _ask(invocation, target, ("GET", f"/api/keys/{_quote(key)}", None), read)
    if as_json:
        document(row)
        return
    row["created_at"] = moment(row["created_at"])
    for name in [name for name in row if name.endswith("_micro_usd")]:
        row[name.removesuffix("_micro_usd")] = _dollars(row.pop(name))
    table(("what", "value"), [(name, _render_value(value)) for name, value in row.items()])


@keys.command()
@_key
@_target
@json_option
@click.pass_obj
def revoke(invocation: Invocation, key: str, target: str | None, *, as_json: bool) -> None:
    """Revoke a key: it is refused at once, and its calls in flight are cut off."""

    async def end(table: KeyTable) -> Any:
        await table.revoke(key)

    _ask(invocation, target, ("DELETE", f"/api/keys/{_quote(key)}", None), end)
    if as_json:
        document({"revoked": key})
    else:
        note(f"{key} is revoked")


# ---------------------------------------------------------------- the server or the store
def _ask(
    invocation: Invocation,
    target: str | None,
    request: tuple[str, str, Any],
    in_store: Callable[[KeyTable], Any],
    *,
    may_make: bool = False,
    unmade: Any = None,
) -> Any:
    """Return the answer of the server or of the store. `unmade` is the answer of the configured store where it is not
    made yet; a store that was named has to be there, unless the command `may_make` it."""
    if target is not None and target.startswith(("http://", "https://")):
        return _over_http(invocation, target.rstrip("/"), *request)
    from lyra.server.settings import read_announcement

    config = invocation.config
    cluster = config.cluster.store.reveal() if config.cluster.store is not None else None
    store = target or cluster or config.store_target()
    url = read_announcement(store, os.environ)
    if url and _is_there(url):
        return _over_http(invocation, url, *request)
    if target is None and (url := _only_server()):
        return _over_http(invocation, url, *request)
    if store == cluster:
        raise ConfigError(
            "no host on this machine serves the cluster", hint="name the address of any: `lyra keys … http://HOST:PORT`"
        )
    if store == "memory":
        raise ConfigError(
            "a memory store ends with its server, and none is found", hint="name the server: `lyra keys … http://…`"
        )
    if not may_make:
        from lyra.cli.commands.store import must_exist

        try:
            must_exist(store)
        except StoreError:
            if target is None and unmade is not None:
                return unmade
            raise
    return asyncio.run(_in_store(invocation, store, in_store))


def _is_there(url: str) -> bool:
    """Return whether a server answers at this address: one that was killed has left it."""
    import httpx2

    try:
        return httpx2.get(f"{url}/healthz", timeout=_TIMEOUT_S).status_code == 200
    except httpx2.HTTPError:
        return False


def _only_server() -> str:
    """Return the one server of this user that runs, of whichever store; "" where there is none."""
    from lyra.server.settings import all_announced

    urls = [url for url in all_announced(os.environ) if _is_there(url)]
    if len(urls) > 1:
        raise ConfigError(f"more than one server runs: {', '.join(urls)}", hint="name one of them, or its store")
    return urls[0] if urls else ""


async def _in_store(invocation: Invocation, store: str, act: Callable[[KeyTable], Any]) -> Any:
    from lyra.kernel.kernel import Kernel
    from lyra.server.gateway.keys import KeyTable

    async with Kernel.from_config(invocation.config, store=store, lease_wait_s=0.0) as kernel:
        table = KeyTable(kernel)
        await table.open()
        return await act(table)


def _over_http(invocation: Invocation, url: str, method: str, path: str, body: Any) -> Any:
    import httpx2

    from lyra.server.identity import operator_token, read_kept_token

    own = invocation.config.server.token_file
    token = (operator_token(own) if own else "") or read_kept_token(os.environ)
    if not token:
        raise Unauthenticated(f"the server at {url} asks for a token", hint=_TOKEN_HINT)
    headers = {"authorization": f"Bearer {token}"}
    try:
        answer = httpx2.request(method, f"{url}{path}", json=body, headers=headers, timeout=_TIMEOUT_S)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise StoreError(f"the server at {url} cannot be reached: {error}") from None
    try:
        data = answer.json()
    except ValueError:
        data = {}
    if answer.status_code < 300:
        return data
    error_data = data.get("error") if isinstance(data, dict) else None
    message = str((error_data or {}).get("message") or f"the server answered with {answer.status_code}")
    hint = (error_data or {}).get("hint") or None
    if answer.status_code == 401:
        raise Unauthenticated(message, hint=_TOKEN_HINT)
    if answer.status_code == 404 and "no such path" in message:
        raise ConfigError(f"the server at {url} has no gateway", hint="start it with `lyra serve --gateway`")
    raise _ERRORS.get(answer.status_code, LyraError)(message, hint=hint)


def _key_to_json(key: Any) -> dict[str, Any]:
    import msgspec

    from lyra.server.gateway.routes import key_view

    data: dict[str, Any] = msgspec.to_builtins(key_view(key))
    return data


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _dollars(micro_usd: int | None) -> str:
    return "-" if micro_usd is None else f"${micro_usd / 1_000_000:.6f}".rstrip("0").ljust(5, "0")


def _render_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
