"""Vesper nodes behind the server: their routes, their evidence, and that only the operator changes a mode."""

from __future__ import annotations

import pytest

from lyra import Kernel, vesper
from lyra.errors import ConfigError
from lyra.observe.metrics import attach_metrics
from lyra.server import mount_nodes
from lyra.vesper.evidence.state import KeptDivergence
from lyra.vesper.runtime.runtime import Runtime
from tests.server.http.support import Served, echo, in_loop, serving

PRICE = """\
node_id: price_v1
type: http_handler
intent: give a price
metadata: {route: "GET /goods/{name}/price"}
inputs:
  name: string
  count: {type: integer, constraints: [{max: 10}]}
outputs:
  success: {text: string}
flow:
  - {step: write, operation: string_template, template: "{count} {name}", output: text}
"""


def test_a_handler_is_reached_at_its_own_path_with_a_token() -> None:
    """Inputs come from the path and the query; errors are the node's; other methods are said. Divergences, which have
    inputs of all users, are shown to the operator alone. The metrics have the figures of the node, once."""

    async def main() -> None:
        with Runtime() as runtime:
            kernel = Kernel(programs=[echo()])
            node = vesper.load(PRICE)
            mount_nodes(kernel, runtime, [node])
            with pytest.raises(ConfigError, match="mounted already"):
                mount_nodes(kernel, runtime, [])
            async with serving(kernel=kernel) as parts:
                await routes(parts)
                await evidence(parts)
                kept = runtime.evidence(node)
                kept.found.append(KeptDivergence(0.0, "shadow_direct", {"name": "secret of ada"}, [], True))
                assert "secret of ada" in (await parts.operator.get("/api/nodes/price_v1")).text
                assert (await parts.bob.get("/api/nodes/price_v1")).json()["found"] == []

                text = (await parts.operator.get("/metrics")).text
                for name in ("executions_total", "execution_duration_ms", "executions_errors", "divergences"):
                    assert text.count(f"# TYPE sir_{name} ") == 1
                assert 'sir_executions_total{node="price_v1",path="python"}' in text
                assert 'sir_confidence{node="price_v1"}' in text
                assert 'sir_traffic_split{node="price_v1",path="python"}' in text
                attach_metrics(kernel).add_text(runtime.metrics_text)
                assert (await parts.operator.get("/metrics")).text.count("# TYPE sir_divergences ") == 1

    async def routes(parts: Served) -> None:
        answer = await parts.ada.get("/goods/bread/price", params={"count": 6})
        assert (answer.status_code, answer.json()["outputs"]) == (200, {"text": "6 bread"})
        assert (await parts.stranger.get("/goods/bread/price", params={"count": 6})).status_code == 401
        assert (await parts.ada.get("/goods/bread/price", params={"count": 11})).status_code == 400
        assert (await parts.ada.post("/goods/bread/price")).status_code == 405
        assert (await parts.ada.get("/goods/bread")).status_code == 404

    async def evidence(parts: Served) -> None:
        (row,) = (await parts.ada.get("/api/nodes")).json()["nodes"]
        assert (row["node_id"], row["mode"]) == ("price_v1", "python_only")
        assert row["routes"] == ["GET /goods/{name}/price"]
        done = await parts.ada.post("/api/nodes/price_v1/execute", json={"inputs": {"name": "tea", "count": 3}})
        assert done.json()["outputs"] == {"text": "3 tea"}
        wrong = await parts.ada.post("/api/nodes/price_v1/execute", json={"inputs": {}})
        assert wrong.json()["status"] == "error"
        mode = {"mode": "shadow_direct", "force": True}
        assert (await parts.ada.post("/api/nodes/price_v1/mode", json=mode)).status_code == 403
        changed = await parts.operator.post("/api/nodes/price_v1/mode", json=mode)
        assert changed.json()["mode"] == "shadow_direct"
        assert (changed.json()["next_mode"], changed.json()["rollback_mode"]) == ("canary_direct", "python_only")
        assert "1000 and a confidence of 0.95 are needed" in changed.json()["lack"]
        assert (changed.json()["confidence_low"], changed.json()["confidence_high"]) == (0.0, 1.0)
        assert (await parts.ada.post("/api/nodes/price_v1/rollback")).status_code == 403
        back = await parts.operator.post("/api/nodes/price_v1/rollback")
        assert back.json()["mode"] == "python_only"
        assert (await parts.operator.post("/api/nodes/price_v1/rollback")).status_code == 400
        await parts.operator.post("/api/nodes/price_v1/mode", json=mode)
        assert (await parts.operator.get("/api/nodes/none")).status_code == 404

    in_loop(main())


def test_without_nodes_there_are_none() -> None:
    async def main() -> None:
        async with serving() as parts:
            assert (await parts.ada.get("/api/nodes")).json() == {"nodes": []}
            assert (await parts.ada.get("/api/nodes/x")).status_code == 404

    in_loop(main())


def test_a_handler_may_have_a_path_beside_those_of_vendors() -> None:
    """Below `/v1/`, or one that a vendor's client would ask with the wrong base URL: the node answers."""

    async def main() -> None:
        with Runtime() as runtime:
            kernel = Kernel(programs=[echo()])
            nodes = [
                vesper.load(PRICE.replace("price_v1", f"price_v{number + 1}").replace("GET /goods/{name}/price", route))
                for number, route in enumerate(("GET /v1/goods/{name}", "GET /models/{name}"))
            ]
            mount_nodes(kernel, runtime, nodes)
            async with serving(kernel=kernel) as parts:
                for path in ("/v1/goods/bread", "/models/bread"):
                    answer = await parts.ada.get(path, params={"count": 6})
                    assert (answer.status_code, answer.json()["outputs"]) == (200, {"text": "6 bread"})

    in_loop(main())
