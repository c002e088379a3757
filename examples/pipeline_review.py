"""Agents of `pipeline.toml`: each is an async function of the envelope that gives a mapping.

    python examples/pipeline_review.py

Runs the pipeline on a kernel in memory and prints what happens. The second draft pleases both reviewers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from lyra.core.envelope import Envelope
from lyra.kernel import Kernel
from lyra.kernel.pipelines.files import load_file


async def draft(envelope: Envelope) -> dict[str, object]:
    round_number = envelope.iteration + 1
    return {"text": f"{envelope.raw_input or 'a text'}, draft {round_number}", "round": round_number}


async def facts(envelope: Envelope) -> dict[str, object]:
    return {"ok": True, "notes": f"facts of {envelope.outputs['draft']['text']} are right"}


async def style(envelope: Envelope) -> dict[str, object]:
    score = 5 + 2 * int(envelope.outputs["draft"]["round"]) - 1
    return {"score": score, "notes": f"style: {score} of 10"}


async def publish(envelope: Envelope) -> dict[str, object]:
    return {"published": envelope.outputs["draft"]["text"]}


async def main() -> None:
    pipeline = load_file(Path(__file__).with_name("pipeline.toml"))
    async with Kernel() as kernel:
        for agent in (draft, facts, style, publish):
            kernel.register_agent(agent.__name__, agent)
        async for event in kernel.execute_pipeline(pipeline, {"raw_input": "budgets"}):
            if event.type in ("stage_completed", "pipeline_completed"):
                print(event.type, event.stage)
        print(event.envelope.outputs["publish"]["published"])
        print(event.envelope.metadata["state"]["notes"])


if __name__ == "__main__":
    asyncio.run(main())
