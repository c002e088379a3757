"""Lets the clients of tests share one list of trusted certificates.

Every client of httpx reads the whole list when it is made, also one that only ever asks a server of the test over plain
HTTP: most of the time of a test with a few clients. Contexts that a caller makes for itself are not shared.
"""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx._transports.default
import httpx2._transports.default


def _share(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    @functools.cache
    def of_all(_: tuple[str | None, ...], trust_env: bool) -> ssl.SSLContext:
        return make(trust_env=trust_env)

    def shared(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        return of_all(tuple(map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))), trust_env)

    return shared


for _transports in (httpx._transports.default, httpx2._transports.default):
    vars(_transports)["create_ssl_context"] = _share(vars(_transports)["create_ssl_context"])
