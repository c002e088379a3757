"""The server: one kernel for programs in any language (gRPC), for applications (HTTP) and for people.

Start with `serve`, which runs a kernel behind both faces; `identity` says who calls, `settings` on what it listens.
`grpc/` and `http/` are the faces, `generated/` holds the message classes of `proto/`, and `app` gives the HTTP face to
mount into an application of one's own. The server never acts by itself: each request is a call of the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.app import HttpApp

__all__ = ["app"]


def app(kernel: Kernel, **options: Any) -> HttpApp:
    """The HTTP face of a kernel as an ASGI application, to mount into one's own; `lyra.server.http.app.make_app` has
    the options: `tokens`, `authenticate`, `hosts`, `message_bytes_max`, `requests_per_minute`."""
    from lyra.server.http.app import make_app

    return make_app(kernel, **options)
