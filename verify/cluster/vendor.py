"""A vendor of models as a process of its own: it speaks the vendors' formats and answers after `MODEL_S`.

It prints the variables that make the usual clients come to it, in JSON, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial

from lyra.testing.mock.server import MockServer
from verify.cluster.programs import MODEL_S, answer_digger


async def _serve() -> None:
    async with MockServer(partial(answer_digger, first_s=MODEL_S)) as server:
        print(json.dumps(server.env), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
