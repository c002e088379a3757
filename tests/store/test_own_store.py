"""A store of a user's own: whatever has the methods of `Store` opens a kernel."""

from __future__ import annotations

from typing import Any, cast

from lyra.kernel import Kernel
from lyra.store import Store
from lyra.store.memory import MemoryStore
from tests.kernel.conftest import run


class OwnStore:
    """Hands every call on to a store in memory, and counts them."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._inner, name)


async def work() -> str:
    return "done"


async def once(ctx: Any) -> str:
    return str(await ctx.do(work))


def test_a_kernel_keeps_its_journal_in_a_store_of_the_users_own() -> None:
    async def main() -> None:
        store = OwnStore()
        async with Kernel(cast("Store", store), programs=[once]) as kernel:
            assert (await kernel.spawn(once, pid="p").wait()).result == "done"
        assert {"acquire", "append", "release"} <= set(store.calls)

    run(main())
