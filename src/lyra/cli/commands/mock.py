"""`lyra mock`: a server that stands in for the model providers.

Serves `lyra.testing.mock` until it is interrupted; decides nothing itself. What to export goes to stdout, each request
that was answered to stderr.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final

import click

from lyra.cli.app import CommandGroup, json_option
from lyra.cli.render import document, note, printable

if TYPE_CHECKING:
    from lyra.testing.mock.http import HttpRequest


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@click.group(cls=CommandGroup)
def mock() -> None:
    """Serve the APIs of Anthropic, OpenAI and Ollama from a script, for tests."""


@mock.command()
@click.option(
    "--script",
    default=None,
    metavar="FILE",
    help="The answers (YAML, TOML or JSON); without it the server repeats each prompt.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 chooses a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--public", is_flag=True, help="Allow a host that other machines can reach.")
@json_option
def serve(*, script: str | None, port: int, host: str, public: bool, as_json: bool) -> None:
    """Answer over HTTP as the providers do, from a script, until interrupted."""
    asyncio.run(_serve(script, host, port, public=public, as_json=as_json))


async def _serve(script: str | None, host: str, port: int, *, public: bool, as_json: bool) -> None:
    from lyra.testing.mock import MockServer

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        async with MockServer(script, host=host, port=port, public=public, seen=_tell) as server:
            _announce(server.url, server.env, as_json=as_json)
            await stopped.wait()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _announce(url: str, env: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        document({"url": url, "env": env})
    else:
        click.echo(f"# the mock server listens on {url}; Ctrl-C ends it")
        for name, value in env.items():
            click.echo(f"export {name}={value}")


def _tell(asked: HttpRequest, status: int) -> None:
    note(printable(f"{asked.method} {asked.path} {status if status > 0 else 'broken off'}"))
