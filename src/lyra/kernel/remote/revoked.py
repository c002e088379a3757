"""What is in force no more on any shard: ids that are revoked until they would have ended by themselves.

Something that says itself what it is worth, such as a login in a cookie, holds wherever its signature is checked. What
ends it early has to be known everywhere: `revoke` is a row here and a post to each other shard, so that a shard that is
open nowhere at the moment hears of it when it opens.

`key` signs what one shard makes and each shard checks; the cluster derives it from its secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.limits import REVOKED_KEPT
from lyra.kernel.remote.part import RemotePart

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote


_APART_S: Final = 3_600.0  # by which the clocks of two hosts may differ


class Revoked(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "revoked"
    SENDS: ClassVar[frozenset[str]] = frozenset({"revoked"})
    KEEPS: ClassVar[frozenset[str]] = SENDS

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._remote = remote
        self.key = b""  # filled in by the cluster
        self.until: dict[str, float] = {}  # id → when it would have ended, by the wall clock

    def __contains__(self, name: str) -> bool:
        return name in self.until

    def revoke(self, name: str, until: float) -> None:
        """End what has this id, on all shards; a second call changes nothing."""
        if name in self.until:
            return
        data = {"id": name, "until": until, "at": self._core.now()}
        self._remote.note(self, data)
        for shard in self._remote.shards:
            if shard != self._remote.shard:
                self._remote.post(shard, "revoked", data, refusable=False)

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        for name in [name for name, until in self.until.items() if until + _APART_S <= data["at"]]:
            del self.until[name]
        self.until[data["id"]] = data["until"]
        if len(self.until) > REVOKED_KEPT:
            del self.until[min(self.until, key=self.until.__getitem__)]

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.apply_noted("", 0.0, data)

    def dump(self) -> Any:
        return {"until": self.until}

    def load(self, data: Any) -> None:
        self.until = {str(name): float(until) for name, until in data["until"].items()}
