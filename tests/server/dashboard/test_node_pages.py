"""The pages of nodes: evidence, divergences for the operator, Promote only with the evidence, Roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from lyra import Kernel, vesper
from lyra.server import mount_nodes
from lyra.vesper.evidence.state import KeptDivergence
from lyra.vesper.runtime.runtime import Runtime
from tests.server.dashboard.support import ADA, OPERATOR, VIEWER, Served, elements, logged_in, serving, texts
from tests.server.http.support import echo, in_loop
from tests.server.http.test_nodes import PRICE

HOSTILE = "<script>alert('tea')</script>"
NODE = "/nodes/price_v1"


def with_node(test: Callable[[Served, Runtime, Any], Awaitable[None]], **options: Any) -> None:
    """Run a test on a server with one node."""

    async def main() -> None:
        with Runtime(**options) as runtime:
            kernel = Kernel(programs=[echo()])
            node = vesper.load(PRICE)
            mount_nodes(kernel, runtime, [node])
            async with serving(kernel=kernel) as parts:
                await test(parts, runtime, node)

    in_loop(main())


def compare(runtime: Runtime, node: Any, count: int) -> None:
    for number in range(count):
        runtime.execute(node, {"name": f"bread{number}", "count": number % 10})
    runtime.settle()


def buttons(page: str) -> dict[str, bool]:
    """The acts of a page, and whether each is enabled."""
    forms = [str(form["action"]).rpartition("/")[2] for form in elements(page, "form")]
    return dict(zip(forms, ["disabled" not in box for box in elements(page, "fieldset")], strict=True))


def test_promote_is_disabled_with_the_reason_until_the_evidence_suffices() -> None:
    async def test(parts: Served, runtime: Runtime, node: Any) -> None:
        async with logged_in(parts, OPERATOR) as operator:
            runtime.set_mode(node, "shadow_direct")
            page = await operator.page(NODE)
            assert buttons(page) == {"promote": False, "rollback": True}
            assert "0 accepted inputs, 1000 and a confidence of 0.95 are needed" in texts(page)
            refused = await operator.post("/acts/nodes/price_v1/promote")
            assert refused.status_code == 400
            assert runtime.mode(node) == "shadow_direct"
            await asyncio.to_thread(compare, runtime, node, 1_100)
            page = await operator.page(NODE)
            assert buttons(page) == {"promote": True, "rollback": True}
            assert [figure["id"] for figure in elements(page, "figure")] == ["confidence"]
            answer = await operator.post("/acts/nodes/price_v1/promote")
            assert (answer.status_code, runtime.mode(node)) == (303, "canary_direct")
            page = await operator.page(NODE)
            assert "95 % Python, 5 % direct" in texts(page)
            answer = await operator.post("/acts/nodes/price_v1/rollback")
            assert (answer.status_code, runtime.mode(node)) == (303, "shadow_direct")
            assert "set by hand" in texts(await operator.page(NODE, region="changes"))
            await operator.post("/acts/nodes/price_v1/rollback")
            assert (await operator.post("/acts/nodes/price_v1/rollback")).status_code == 400
            assert runtime.mode(node) == "python_only"

    with_node(test)


def test_promote_waits_for_as_many_successes_as_the_runtime_asks_for() -> None:
    """The button and its reason follow `min_successes` of the runtime, as the promotion itself does."""

    async def test(parts: Served, runtime: Runtime, node: Any) -> None:
        runtime.set_mode(node, "shadow_direct")
        await asyncio.to_thread(compare, runtime, node, 1_100)
        async with logged_in(parts, OPERATOR) as operator:
            page = await operator.page(NODE)
            assert buttons(page)["promote"] is False
            assert "distinct inputs, 20000 are needed" in texts(page)

    with_node(test, min_successes=20_000)


def test_a_user_and_a_viewer_change_no_mode() -> None:
    async def test(parts: Served, runtime: Runtime, node: Any) -> None:
        runtime.set_mode(node, "shadow_direct")
        for token in (ADA, VIEWER):
            async with logged_in(parts, token) as browser:
                assert set(buttons(await browser.page(NODE)).values()) == {False}
                for act in ("promote", "rollback"):
                    assert (await browser.post(f"/acts/nodes/price_v1/{act}")).status_code == 403
        assert runtime.mode(node) == "shadow_direct"

    with_node(test)


def test_divergences_are_shown_with_their_inputs_to_the_operator_alone() -> None:
    async def test(parts: Served, runtime: Runtime, node: Any) -> None:
        runtime.set_mode(node, "shadow_direct")
        differences = [{"path": "outputs.text", "kind": "value_mismatch", "python": "3 tea", "direct": HOSTILE}]
        kept = KeptDivergence(5.0, "shadow_direct", {"name": HOSTILE, "secret": "of ada"}, differences, True)
        evidence = runtime.evidence(node)
        for is_reproducible in (False, True, True):
            evidence.found.append(msgspec.structs.replace(kept, reproducible=is_reproducible))
        evidence.compared, evidence.divergences, evidence.blocked = 10, 3, True
        async with logged_in(parts, OPERATOR) as operator, logged_in(parts, ADA) as ada:
            page = await operator.page(NODE)
            assert "Divergences3, 2 can be reproduced" in texts(page)
            assert texts(page).count(": can be reproduced") == 2
            assert "of ada" in texts(page)
            assert "3 tea" in texts(page)
            assert HOSTILE in texts(page)
            assert HOSTILE not in page
            assert "of ada" not in await ada.page(NODE)

    with_node(test)


def test_nodes_are_listed_and_a_change_reaches_the_feed() -> None:
    """The runtime has a kernel of its own; a change of mode is told to the served one, so that the page follows."""

    async def test(parts: Served, runtime: Runtime, node: Any) -> None:
        heard: list[Any] = []
        parts.kernel.on_event(heard.append, kinds=("vesper.mode",))
        async with logged_in(parts, ADA) as ada:
            page = await ada.page("/nodes")
            assert "price_v1" in texts(page)
            assert "shadow_direct is allowed" in texts(page)
            await ada.page("/nodes/none", status=404)
        await asyncio.to_thread(runtime.set_mode, node, "shadow_direct")
        while not heard:
            await asyncio.sleep(0.01)
        assert heard[0].data == {"node": "price_v1", "to": "shadow_direct", "why": "set by hand"}

    with_node(test)


def test_a_server_without_nodes_says_how_to_have_some() -> None:
    async def main() -> None:
        async with serving() as parts, logged_in(parts, ADA) as ada:
            assert "mount_nodes" in texts(await ada.page("/nodes"))
            await ada.page(NODE, status=404)

    in_loop(main())
