"""A stretch of a program that is over: a replay passes over it, with whatever program."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra import Context, Kernel
from lyra.kernel.process.replay import replay_milestone, write_milestone
from tests.kernel.conftest import settle


async def note(text: str) -> str:
    return text


def _program(version: str, seen: list[Any]) -> Any:
    async def worker(ctx: Context) -> None:
        process = ctx.own_process
        while True:
            message = await ctx.receive()
            begin = process.keys
            outcome = await replay_milestone(process, "work")
            if outcome is None:
                outcome = await ctx.do(note, f"{version}:{message}")
                async with asyncio.TaskGroup() as group:
                    for _ in range(len(version)):  # as many branches as the version has letters
                        group.create_task(ctx.sleep(0))
                await write_milestone(process, "work", begin, outcome)
            seen.append(outcome)

    worker.__module__, worker.__qualname__ = "work", "er"
    return worker


async def _life(path: Path, version: str, *messages: str) -> list[Any]:
    seen: list[Any] = []
    program = _program(version, seen)
    async with Kernel(str(path), programs=[program]) as kernel:
        kernel.spawn(program, pid="w")
        for message in messages:
            await kernel.send("w", message)
            await settle(kernel)
        await settle(kernel)
    return seen


def test_what_is_over_is_passed_over(tmp_path):
    """With other calls and branches inside: the outcomes are those of then, and the program goes on from there."""
    path = tmp_path / "run.db"
    assert asyncio.run(_life(path, "v1", "a", "b")) == ["v1:a", "v1:b"]
    assert asyncio.run(_life(path, "long2", "c")) == ["v1:a", "v1:b", "long2:c"]
    assert asyncio.run(_life(path, "x")) == ["v1:a", "v1:b", "long2:c"]
    assert asyncio.run(_life(path, "v4", "d"))[-1] == "v4:d"
