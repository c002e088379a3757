"""How a snapshot reads the journal: each commit once."""

from __future__ import annotations

import pytest

from lyra.core.effect import Effect
from lyra.kernel import Kernel
from lyra.kernel.programs.context import Context
from lyra.store import rows
from tests.kernel.conftest import run


async def _count(number: int) -> int:
    return number


COUNT = Effect(_count, name="count", idempotent=True)


async def counts(ctx: Context, effects: int) -> None:
    for number in range(effects):
        await ctx.do(COUNT, number)


async def crowd(ctx: Context, processes: int, effects: int) -> None:
    for child in [ctx.spawn(counts, effects) for _ in range(processes)]:
        await child.wait()


def test_a_snapshot_reads_each_commit_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy kernel commits hundreds of rows at once, and a store reads and checks a whole commit for any row of it: a
    snapshot is read commit by commit."""
    read: list[int] = []
    unseal = rows.unseal

    def count_read(batch: rows.Batch, *, is_checked: bool = False) -> object:
        read.append(batch[0])
        return unseal(batch, is_checked=is_checked)

    async def main() -> tuple[int, int]:
        async with Kernel(path, programs=[crowd, counts]) as kernel:
            await kernel.spawn(crowd, 400, 10).wait()
            await kernel.durable()
            assert kernel.journal is not None
            monkeypatch.setattr(rows, "unseal", count_read)
            return kernel.journal.commits, kernel.journal.durable_seq  # closing it writes a snapshot

    commits, number = run(main())
    assert number / commits > 300, "the kernel committed few rows at a time"
    assert len(set(read)) >= commits - 1
    assert len(read) <= len(set(read)) + 2
