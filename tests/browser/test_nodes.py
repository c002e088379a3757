"""A person moves a node to its next mode in the page: under their name, and only where the evidence and the role allow
it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lyra.observe.audit import attach_audit
from tests.browser.conftest import PAST, NewPage
from tests.browser.stage import USER, VIEWER, Stage
from tests.browser.watched_page import WatchedPage

_NODE = "order_total_v1"


def _acts(log: Path) -> list[tuple[str, str, str, str]]:
    """Who did what to which node, as the audit log tells it."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    acts = [row["fields"] for row in rows if row["kind"] == "person.acted"]
    return [(act["person"], act["act"], act["target"], act["outcome"]) for act in acts]


async def test_a_node_is_promoted_under_the_persons_name(
    stage: Stage, browser_page: WatchedPage, tmp_path: Path
) -> None:
    """The button says the next mode; the page shows it when it is pressed, and the audit log says by whom."""
    log = tmp_path / "audit.jsonl"
    attach_audit(stage.kernel, log)
    page, runtime = browser_page.page, stage.scene.runtime
    node = stage.scene._nodes[_NODE]
    await browser_page.go(f"/nodes/{_NODE}")
    await page.get_by_role("button", name="Promote to shadow_direct").click()
    await browser_page.shown("#node .state:has-text('shadow_direct')")
    await browser_page.shown("#changes td:has-text('python_only')")
    assert runtime.mode(node) == "shadow_direct"
    # Now nothing has been compared yet: the next step is grey and says what it needs.
    assert await page.get_by_role("button", name="Promote to canary_direct").is_disabled()
    await browser_page.shown("#node >> text=0 accepted inputs, 1000 and a confidence of 0.95 are needed")
    assert _acts(log) == [("olga", "acts.promote_node", _NODE, "ok")]


@PAST
async def test_who_may_not_promote_sees_why(stage: Stage, new_page: NewPage) -> None:
    """The button is grey for a viewer and a user, with the reason beside it, also where the evidence would suffice."""
    runtime, node = stage.scene.runtime, stage.scene._nodes["shipping_quote_v1"]
    runtime.set_mode(node, "shadow_direct")
    reasons = {VIEWER: "The role viewer changes nothing", USER: "The mode of a node is for the operator"}
    async with new_page() as operator:
        await operator.go("/nodes/shipping_quote_v1")
        assert await operator.page.get_by_role("button", name="Promote to canary_direct").is_enabled()
    for token, reason in reasons.items():
        async with new_page(token=token) as page:
            await page.go("/nodes/shipping_quote_v1")
            for name in ("Promote to canary_direct", "Roll back to python_only"):
                assert await page.page.get_by_role("button", name=name).is_disabled()
            assert await page.page.locator("#node fieldset").first.get_attribute("title") == reason
            await page.shown(f"#node .note:has-text('{reason}')")
    assert runtime.mode(node) == "shadow_direct"
