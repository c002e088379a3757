"""The server: one kernel for programs in any language (gRPC), for applications (HTTP) and for people.

Start with `serve`, which runs a kernel behind both faces; `identity` says who calls, `settings` on what it listens.
`grpc/` and `http/` are the faces, `generated/` holds the message classes of `proto/`, and `app` gives the HTTP face to
mount into an application of one's own (`wsgi` for WSGI); `request_guard` is a middleware for the requests of such an
application. The server never acts by itself: each request is a call of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._imports import on_first_use

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.kernel.kernel import Kernel
    from lyra.server.http.app import HttpApp
    from lyra.server.http.wsgi import WsgiApp
    from lyra.server.request_guard import RequestGuard
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime

__all__ = ["RequestGuard", "app", "mount_nodes", "wsgi"]


def app(kernel: Kernel, **options: Any) -> HttpApp:
    """Return the HTTP face of a kernel as an ASGI application, to mount into one's own; `lyra.server.http.app.make_app`
    has the options: `tokens`, `authenticate`, `hosts`, `message_bytes_max`, `requests_per_minute`."""
    from lyra.server.dashboard.login import problem_page
    from lyra.server.http.app import make_app
    from lyra.server.site import site

    return make_app(kernel, endpoints=site(), problem_page=problem_page, **options)


def wsgi(kernel: Kernel, **options: Any) -> WsgiApp:
    """Make the site a WSGI application, for Flask, Django and others. The kernel runs in its own thread from the
    first request on."""
    from lyra.server.dashboard.login import problem_page
    from lyra.server.http.wsgi import WsgiApp
    from lyra.server.site import site

    return WsgiApp(kernel, endpoints=site(), problem_page=problem_page, **options)


def mount_nodes(kernel: Kernel, runtime: Runtime, nodes: Iterable[Node] = ()) -> None:
    """Show Vesper nodes behind the kernel's server, and mount those of type `http_handler` at their own paths; without
    `nodes`, those that the runtime's store keeps."""
    from lyra.server.http.mounted_nodes import mount_nodes

    mount_nodes(kernel, runtime, nodes)


if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "request_guard": "RequestGuard",
        },
    )
