"""The pages of nodes: evidence, divergences for the operator, Promote only with the evidence, Roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from lyra import Kernel, vesper
from lyra.server import mount_nodes
from lyra.vesper.evidence.differential import test_node as compare_paths
from lyra.vesper.evidence.state import KeptDivergence, NodeEvidence
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


STEP_OR_NOT = """\
node_id: parcel_v1
type: function
intent: give a price for a parcel
inputs: {weight: {type: integer, constraints: [{min: 1}, {max: 100000}]}, code: string}
outputs: {success: {price: integer}, error: {error_code: "enum[secret]"}}
flow:
  - {step: base, operation: arithmetic, expression: "weight * 2", output: price}
  - step: rare
    operation: conditional
    condition: "code.length == 4 AND upper(code) == replace(code, 'A', 'B') AND weight * 7919 % 100003 == 77777"
    then: [{step: refuse, operation: return, return_error: secret}]
  - step: never
    operation: conditional
    condition: "weight < 0"
    then: [{step: free, operation: arithmetic, expression: "0", output: price}]
"""


def test_reach_and_successes_of_verify_stand_beside_the_confidence(tmp_path: Path) -> None:
    """What `vesper verify` has left in a store: the page and the API name the parts that it reached and those that it
    did not, and count the inputs that were accepted and that succeeded."""
    store, file = str(tmp_path / "lyra.db"), tmp_path / "parcel.vsp"
    file.write_text(STEP_OR_NOT, encoding="utf-8")

    async def main() -> None:
        with Runtime(store) as runtime:
            kernel = Kernel(programs=[echo()])
            node = vesper.load(file)
            mount_nodes(kernel, runtime, [node])
            async with serving(kernel=kernel) as parts, logged_in(parts, OPERATOR) as operator:
                page = texts(await operator.page("/nodes/parcel_v1"))
                assert "Reachnot searched" in page
                assert "Successesnone" in page
                report = await asyncio.to_thread(compare_paths, node, 400)
                await asyncio.to_thread(runtime.add_report, node, report)
                await check(parts, operator, runtime.evidence(node))

    async def check(parts: Served, operator: Any, evidence: NodeEvidence) -> None:
        assert evidence.unreached == ["rare: then", "refuse", "error secret"]
        page = await operator.page("/nodes/parcel_v1")
        shown = texts(page)
        goals = len(evidence.goals) - len(evidence.unreachable)
        reached = len([goal for goal in evidence.goals if goal in evidence.reached])
        assert f"Reach{reached} of {goals} steps, branches and errors" in shown
        assert f"Successes{evidence.successes} of {evidence.accepted} accepted inputs" in shown
        assert f"Compared{evidence.compared}, {evidence.distinct} distinct inputs" in shown
        for name in evidence.unreached:
            assert f"{name}not reached yet: add a test case that leads there" in shown
        for name, why in evidence.unreachable.items():
            assert f"{name}{why}" in shown
        assert page.count("<li><code>") == reached
        assert "<li><code>base</code></li>" in page
        listed = texts(await operator.page("/nodes"))
        assert f"{reached} of {goals}{evidence.successes}" in listed
        (row,) = (await parts.ada.get("/api/nodes")).json()["nodes"]
        assert (row["distinct"], row["accepted"]) == (evidence.distinct, evidence.accepted)
        assert (row["successes"], row["complete"]) == (evidence.successes, False)
        assert (row["reached"][:1], row["unreached"]) == (["base"], evidence.unreached)
        assert row["unreachable"] == evidence.unreachable != {}

    in_loop(main())


def test_a_node_of_which_all_inputs_were_tried_is_sure() -> None:
    """The page says so instead of an interval, and the API has 1 at both ends."""

    async def main() -> None:
        with Runtime() as runtime:
            kernel = Kernel(programs=[echo()])
            node = vesper.load(
                PRICE.replace("name: string", "name: boolean")
                .replace("{name}/", "")
                .replace("max: 10", "min: 1, max: 3")
            )
            mount_nodes(kernel, runtime, [node])
            await asyncio.to_thread(runtime.add_report, node, await asyncio.to_thread(compare_paths, node, 100))
            async with serving(kernel=kernel) as parts, logged_in(parts, ADA) as ada:
                assert "all inputs that the node takes were compared" in texts(await ada.page(NODE))
                (row,) = (await parts.ada.get("/api/nodes")).json()["nodes"]
                assert (row["complete"], row["confidence_low"], row["confidence_high"]) == (True, 1.0, 1.0)

    in_loop(main())
