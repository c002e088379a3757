"""TokenLimit: how many tokens and keys that are not known one address may try.

An address from which too many different ones came within a minute has to wait before a new one is looked at. One that
was looked at before is looked at again, whether it was known or not, and counts once: a program with a wrong token
locks no other out, and those that work continue while another one behind the same address, or the same proxy, guesses.
Kept in memory, for a bounded number of addresses and tokens, which are known by their hashes; HTTP and gRPC share one.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lyra.core.limits import SERVER_CALLERS_KEPT, SERVER_LOGIN_FAILURES
from lyra.errors import RateLimited, Unauthenticated
from lyra.server.identity import bearer_token

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.kernel.kernel import Kernel


_PART: Final = "server.token_limit"  # the name under which the kernel keeps it for its faces


def credential_of(headers: Mapping[str, str]) -> str:
    """Return the token or the key that a request comes with; "" where it has none."""
    return bearer_token(headers.get("authorization", "")) or headers.get("x-api-key", "").strip()


class TokenLimit:
    """See the module."""

    __slots__ = ("_failures", "_seen")

    @classmethod
    def get_shared(cls, kernel: Kernel) -> TokenLimit:
        """Return the one of all faces of a kernel; in a cluster, of all kernels of one host. What one address may try
        grows with the hosts, then, and no guess of a stranger makes hosts call each other."""
        kept = kernel.parts if kernel.core.remote is None else kernel.core.remote.beside
        limit: TokenLimit = kept.setdefault(_PART, cls(kernel.clock))
        return limit

    def __init__(self, clock: Clock) -> None:
        self._failures = RequestWindow(SERVER_LOGIN_FAILURES, clock)  # by address
        self._seen: OrderedDict[bytes, None] = OrderedDict()  # tokens with their address; the last used is the last

    async def close(self) -> None:
        """Forget all addresses and tokens: the kernel closes."""
        self._failures.clear()
        self._seen.clear()

    @contextmanager
    def attempt(self, address: str, token: str) -> Iterator[None]:
        """Look a token or a key up inside. RateLimited if too many from the address were not known; Unauthenticated,
        raised inside, counts as one more. A request without a token tries none."""
        if not token:
            yield
            return
        pair = hashlib.sha256(f"{address}\0{token}".encode("utf-8", "surrogatepass")).digest()
        is_new = pair not in self._seen
        wait_s = self._failures.wait_s(address) if is_new else 0.0
        if wait_s:
            raise RateLimited(
                "too many requests: tokens that are not known, from this address",
                hint="wait, then ask again",
                retry_after_s=wait_s,
            )
        self._seen[pair] = None
        self._seen.move_to_end(pair)
        if len(self._seen) > SERVER_CALLERS_KEPT:
            self._seen.popitem(last=False)
        try:
            yield
        except Unauthenticated:
            if is_new:
                self._failures.admit(address)
            raise


# How many requests each caller has made in the last minute; a bounded number of callers is remembered.

_MINUTE_S: Final = 60.0


class RequestWindow:
    """Requests of each caller in the last minute: those of this minute, and of the one before the part that counts."""

    __slots__ = ("_clock", "_counts", "limit")

    def __init__(self, limit: int | None, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, int, int]] = OrderedDict()  # caller → (minute, before, now)

    @property
    def is_unlimited(self) -> bool:
        return self.limit is None

    def clear(self) -> None:
        """Forget all callers."""
        self._counts.clear()

    def wait_s(self, caller: str) -> float:
        """Seconds to wait where the next request would be one too many, else 0; counts nothing."""
        return self._admit(caller, count_one=False) if caller in self._counts else 0.0

    def admit(self, caller: str) -> float:
        """Count a request; seconds to wait where it is one too many, else 0."""
        return self._admit(caller, count_one=True)

    def _admit(self, caller: str, *, count_one: bool) -> float:
        if self.limit is None:
            return 0.0
        now_s = self._clock.monotonic()
        minute, into_s = int(now_s // _MINUTE_S), now_s % _MINUTE_S
        last, before, count = self._counts.pop(caller, (minute, 0, 0))
        if minute != last:
            before, count = (count if minute == last + 1 else 0), 0
        weighed = before * (1 - into_s / _MINUTE_S) + count
        if weighed + 1 > self.limit:
            self._counts[caller] = (minute, before, count)
            return _MINUTE_S - into_s if not before or count >= self.limit else max(1.0, _MINUTE_S / max(1, before))
        self._counts[caller] = (minute, before, count + count_one)
        if len(self._counts) > SERVER_CALLERS_KEPT:
            self._counts.popitem(last=False)
        return 0.0
