"""CredentialLimit: how many tokens and keys that are not known one address may try.

An address from which too many came within a minute has to wait before another is looked at. A credential that was known
from the same address before is not held up: programs that work go on while another one behind the same address, or the
same proxy, fails. Kept in memory, for a bounded number of addresses and credentials, which are known by their hashes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lyra.core.limits import SERVER_CALLERS_KEPT, SERVER_LOGIN_FAILURES
from lyra.errors import Unauthenticated
from lyra.server.http.problems import too_many
from lyra.server.identity import bearer_token
from lyra.server.request_window import RequestWindow

if TYPE_CHECKING:
    from lyra.core.clock import Clock

__all__ = ["CredentialLimit", "credential_of"]


def credential_of(headers: Mapping[str, str]) -> str:
    """The token or the key that a request comes with; "" where it has none."""
    return bearer_token(headers.get("authorization", "")) or headers.get("x-api-key", "").strip()


class CredentialLimit:
    """See the module."""

    __slots__ = ("_failures", "_known")

    def __init__(self, clock: Clock) -> None:
        self._failures = RequestWindow(SERVER_LOGIN_FAILURES, clock)  # by address
        self._known: OrderedDict[bytes, None] = OrderedDict()  # addresses with a credential; the last used is the last

    @contextmanager
    def attempt(self, address: str, credential: str) -> Iterator[None]:
        """Look a credential up inside. RateLimited if too many from the address were not known; Unauthenticated, raised
        inside, counts as one more. A request without a credential tries none."""
        if not credential:
            yield
            return
        pair = hashlib.sha256(f"{address}\0{credential}".encode("utf-8", "surrogatepass")).digest()
        wait_s = 0.0 if pair in self._known else self._failures.wait_s(address)
        if wait_s:
            raise too_many(wait_s, "tokens that are not known, from this address")
        try:
            yield
        except Unauthenticated:
            if pair not in self._known:  # one that was revoked is no guess
                self._failures.admit(address)
            raise
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > SERVER_CALLERS_KEPT:
            self._known.popitem(last=False)
