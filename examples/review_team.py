"""A lead and its reviewers: children, nested budgets, messages.

    python examples/review_team.py

The lead may spend $0.10, each reviewer $0.03 of it. A page costs between 4 and 9 tenths of a cent; what it costs at
most is reserved before, what it cost is settled after. A reviewer that runs out of money reports what it has.
"""

from __future__ import annotations

import asyncio
from typing import Any

from lyra import Charged, Context, Kernel, Usage, effect
from lyra.errors import BudgetExceeded


@effect(cost="$0.01", idempotent=True)
async def review(file: str, page: int) -> Charged:
    """Stands for a call that costs money."""
    await asyncio.sleep(0.001)
    findings = (len(file) * page) % 3
    return Charged(findings, Usage(usd=4_000 + 1_000 * (page % 6)))


async def reviewer(ctx: Context, file: str, pages: int) -> None:
    findings = done = 0
    try:
        for page in range(pages):
            findings += await ctx.do(review, file, page)
            done += 1
    except BudgetExceeded:
        pass
    await ctx.send("lead", {"file": file, "done": done, "pages": pages, "findings": findings})


async def lead(ctx: Context, files: dict[str, int]) -> dict[str, Any]:
    for file, pages in files.items():
        ctx.spawn(reviewer, file, pages, name=f"reviewer of {file}", budget="$0.03")
    reports = [await ctx.receive() for _ in files]
    return {"reports": sorted(reports, key=lambda report: str(report["file"])), "spent": ctx.budget.used()}


async def main() -> dict[str, Any]:
    async with Kernel() as kernel:
        result: dict[str, Any] = await kernel.run(
            lead, {"auth.py": 3, "billing.py": 9, "search.py": 2}, name="lead", budget="$0.10"
        )
        for report in result["reports"]:
            print(f"{report['file']}: {report['findings']} findings, {report['done']} of {report['pages']} pages")
        print(f"spent {result['spent']} of $0.10")
        return result


if __name__ == "__main__":
    asyncio.run(main())
