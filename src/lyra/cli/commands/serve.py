"""`lyra serve`: run the kernel for other programs, over gRPC and HTTP, until it is told to stop.

Prints one line of JSON when it is ready, and nothing else on stdout. SIGTERM and Ctrl-C drain: what is in flight
finishes, nothing that was acknowledged is lost, and the exit code is 0. A server whose store is taken over by another
one, or fails, ends by itself, with an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.open_files import allow_open_files
from lyra.cli.render import note
from lyra.cli.setup_file import setup_of
from lyra.errors import Conflict, LyraError

if TYPE_CHECKING:
    from lyra.server.settings import ServeSettings


_log: Final = logging.getLogger("lyra.server")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_OTHER_FILES: Final = 256  # besides the connections of two faces: the store, models, tools
_FILE: Final = click.Path(exists=True, dir_okay=False)


@click.command(cls=CliCommand, uses_trust=True)
@click.option(
    "--grpc", metavar="HOST:PORT", help="Where to listen for gRPC; port 0 chooses a free one, `none`: nowhere."
)
@click.option(
    "--http", metavar="HOST:PORT", help="Where to listen for HTTP; port 0 chooses a free one, `none`: nowhere."
)
@click.option("--db", metavar="FILE|URL", help="The store: a file, `memory`, or postgresql://…")
@click.option(
    "--token-file", type=_FILE, metavar="FILE", help="The tokens that are known: a line each, TOKEN [USER] [role=ROLE]."
)
@click.option(
    "--load", type=_FILE, metavar="FILE.py", help="Run setup(kernel) of this file: agents, services, programs."
)
@click.option(
    "--gateway", is_flag=True, default=False, help="Let clients with a key of `lyra keys` call the model providers."
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate chain of the server (PEM).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of that certificate (PEM).")
@click.option(
    "--tls-client-ca", type=_FILE, metavar="FILE", help="Take only clients with a certificate signed by these."
)
@click.pass_obj
def serve(
    invocation: Invocation,
    /,
    *,
    grpc: str | None,
    http: str | None,
    db: str | None,
    token_file: str | None,
    load: str | None,
    gateway: bool,
    **tls: str | None,
) -> None:
    """Serve the kernel over gRPC and HTTP to other programs and people."""
    flags = {"server.grpc": grpc, "server.http": http, "kernel.store": db, "server.token_file": token_file}
    flags |= {"server.gateway": "true" if gateway else None, **{f"server.{name}": path for name, path in tls.items()}}
    invocation.flags += [f"{name}={value}" for name, value in flags.items() if value is not None]
    from lyra.server.settings import ServeSettings

    settings = ServeSettings.from_config(invocation.config)
    for warning in settings.tokens.warnings:
        _tell(invocation, warning, logging.WARNING)
    if not allow_open_files(2 * settings.connections_max + _OTHER_FILES):
        text = f"this process may not open enough files for [server] connections_max = {settings.connections_max}"
        _tell(invocation, text, logging.WARNING)
    asyncio.run(_serve(invocation, settings, setup_of(load, "kernel") if load else None))


def _tell(invocation: Invocation, text: str, level: int = logging.INFO) -> None:
    """A sentence for the person who starts the server; where logs are JSON, a record of the log like all others."""
    if invocation.config.log.format == "json":
        _log.log(level, "%s", text)
    else:
        note(f"warning: {text}" if level >= logging.WARNING else text)


def _lost(failure: LyraError) -> LyraError:
    """Why the server ended by itself, for the person who started it."""
    if not isinstance(failure, Conflict):
        return failure
    return Conflict(
        "another server has taken over the store: this one did not renew its lease in time, so it has stopped",
        hint="it was paused, or could not reach the store; calls in flight are charged by the other server",
    )


async def _serve(invocation: Invocation, settings: ServeSettings, setup: Callable[[Any], Any] | None) -> None:
    from lyra.kernel.kernel import Kernel
    from lyra.server.serve import Server

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    async with Server(Kernel.from_config(invocation.config), settings, setup=setup) as server:
        _tell(invocation, f"tokens: {settings.token_source}")
        click.echo(json.dumps(server.ready_line()))
        sys.stdout.flush()
        server.when_lost(stopped.set)
        await stopped.wait()
        if server.kernel.failure is not None:
            raise _lost(server.kernel.failure)
        _tell(invocation, "stopping: requests in flight are finished first")
        for number in _SIGNALS:  # a second signal ends the program at once
            loop.remove_signal_handler(number)
