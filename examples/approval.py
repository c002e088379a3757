"""A process asks, a user answers from outside, also after a restart.

    python examples/approval.py approval.db            # asks, and stops
    python examples/approval.py approval.db yes        # answers; the process goes on
    python examples/approval.py approval.db no

The question is in the journal. The kernel that asked may be long gone when the answer comes.
"""

from __future__ import annotations

import asyncio
import sys

from lyra import Context, Kernel


async def publish(text: str) -> str:
    """Not idempotent: publishing twice would be wrong. A crash in the middle of it becomes a question too."""
    return f"published: {text}"


async def release(ctx: Context, text: str) -> str:
    answer = await ctx.ask(f"Publish {text!r}?", kind="confirmation")
    if not answer.approved:
        return "not published"
    return str(await ctx.do(publish, text))


async def main(store: str, answer: str | None = None) -> str | None:
    async with Kernel(store, programs=[release]) as kernel:
        process = await kernel.spawn(release, "version 2", pid="release")
        await asyncio.sleep(0.1)  # time to come to its question
        for question in kernel.interrupts.pending(process.pid):
            print(question.question)
            if answer is None:
                print("run it again with yes or no")
                return None
            await kernel.resolve_interrupt(question.id, {"approved": answer == "yes", "text": answer})
        ended = await process.wait()
        print(ended.result)
        return str(ended.result)


if __name__ == "__main__":
    store_path = sys.argv[1] if len(sys.argv) > 1 else "approval.db"
    asyncio.run(main(store_path, sys.argv[2] if len(sys.argv) > 2 else None))
