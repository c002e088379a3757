"""The paths of vendors' APIs, all below `/v1/`: what a client is told whose base URL does not lead to them.

Vendors' libraries append their own part of a path to the base URL that a person sets; that of OpenAI ends with `/v1`,
that of Anthropic does not. A request that misses a path for that reason is told so, in the vendor's shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lyra.server.http.endpoint import Endpoint, PathTable, RouteMatch
from lyra.server.http.problems import HttpRefusal

_ROOT: Final = "/v1"


class VendorPathMissed(HttpRefusal):
    """A request beside the paths of vendors' APIs; `meant_path` is the one that its client means."""

    def __init__(self, message: str, meant_path: str, hint: str = "") -> None:
        super().__init__(404, message, hint=hint)
        self.meant_path = meant_path


class VendorPaths:
    """The paths of one server."""

    __slots__ = ("_names", "_table")

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        known = [endpoint for endpoint in endpoints if endpoint.path.startswith(f"{_ROOT}/")]
        self._table = PathTable(known)
        self._names = tuple(dict.fromkeys(endpoint.path for endpoint in known))

    def check(self, match: RouteMatch | None, method: str, path: str) -> None:
        """Refuse a request that no endpoint takes, and that is meant for a vendor's API."""
        if match is not None and method in match.methods:
            return
        if path.startswith(f"{_ROOT}/"):
            if match is None:
                raise self._unknown(path)
        elif self._takes(method, f"{_ROOT}{path}"):
            raise VendorPathMissed(f"the base URL of the client lacks {_ROOT} at its end", f"{_ROOT}{path}")

    def _unknown(self, path: str) -> VendorPathMissed:
        hint = f"there are {', '.join(self._names)}"
        shorter = path.removeprefix(_ROOT)
        if self._table.match(shorter) is not None:
            return VendorPathMissed(f"the base URL of the client has {_ROOT} at its end, once too often", shorter, hint)
        return VendorPathMissed("there is no such path", path, hint)

    def _takes(self, method: str, path: str) -> bool:
        match = self._table.match(path)
        return match is not None and method in match.methods
