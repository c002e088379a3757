"""axe-core in a page: what a screen reader, a keyboard or weak eyes could not use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.browser.chromium import axe_source

if TYPE_CHECKING:
    from tests.browser.watched_page import WatchedPage

__all__ = ["violations"]


async def violations(page: WatchedPage, *rules: str) -> list[str]:
    """What axe-core finds, a line each; only by these rules where some are named. Its script is run by the debugger of
    the browser, past the content security policy, which stays in force for the page."""
    if not await page.page.evaluate("'axe' in window"):
        await page.page.evaluate(axe_source().read_text(encoding="utf-8"))
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}  # no rule that is on needs the sheets
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    result = await page.page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['failureSummary']}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
