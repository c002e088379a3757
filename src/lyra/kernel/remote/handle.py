"""What the outside holds of a process on another shard: `kernel.process("s2/p1")`.

It is asked and told by posts, so it works while that shard moves from one host to another, and answers when it is open
again. Whether there is such a process is found out when it is asked; what only its own shard knows (its state, its
budget) is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lyra.errors import ConfigError
from lyra.kernel.process.process import Exit
from lyra.kernel.programs.handle import Ack, Handle

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process


class HandleAbroad(Handle[Any]):
    """See the module."""

    __slots__ = ("address",)

    def __init__(self, kernel: Any, address: str) -> None:
        self._kernel: Any = kernel
        self.address = address

    async def _durable(self) -> HandleAbroad:
        await self._kernel.durable()
        return self

    def __repr__(self) -> str:
        return f"<HandleAbroad {self.address}>"

    @property
    def _process(self) -> NoReturn:  # type: ignore[override]  # there is none here
        raise ConfigError(
            f"process {self.address} is on another shard, which alone knows this of it",
            hint="`lyra ps` over the cluster shows it; wait(), send() and kill() work from here",
            pid=self.address,
        )

    @property
    def pid(self) -> str:
        return self.address

    @property
    def name(self) -> None:
        return None

    @property
    def alive(self) -> bool:
        """A process abroad is taken for alive: only `wait` finds out."""
        return True

    def send(self, message: Any) -> Ack:
        ack: Ack = self._kernel.send(self.address, message)
        return ack

    def kill(self, reason: str = "killed") -> Ack:
        ack: Ack = self._kernel.kill(self.address, reason)
        return ack

    async def wait(self) -> Exit[Any]:
        """Return how it ended, however often its shard moves meanwhile."""
        core: Core[Process] = self._kernel.core
        core.raise_if_closed()
        ended: Exit[Any] = await core.remote.ties.wait_outside(self.address)
        return ended
