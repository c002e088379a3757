"""Records of calls through the gateway: costs by key, metrics, and what the journal holds."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from lyra.cli.main import main as run_lyra
from lyra.store import open_store
from tests.server.gateway.support import OPENAI_KEY, serving_gateway
from tests.server.gateway.test_agents import priced
from tests.server.http.support import in_loop

BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "a secret question"}],
    "max_completion_tokens": 50,
}
PATH = "/v1/chat/completions"


def test_costs_are_told_by_key(tmp_path: Path) -> None:
    """The server's report and the rows of the store agree: what each key paid, for providers and for agents."""
    store = str(tmp_path / "gateway.db")

    async def main() -> None:
        async with serving_gateway(store=store, programs=(priced(),)) as served:
            for name in ("ada", "bob"):
                key = await served.key(name, team="red")
                async with served.client(key) as client:
                    assert (await client.post(PATH, json=BODY)).status_code == 200
            async with served.client(key) as client:
                assert (await client.post(PATH, json={**BODY, "model": "agent/dear"})).status_code == 200
            spent = {name: (await served.view(name))["spent_micro_usd"] for name in ("ada", "bob")}
            report = (await served.operator.get("/api/costs", params={"by": "key"})).json()
            costs = {group["key"]: round(group["cost_usd"] * 1_000_000) for group in report["groups"]}
            assert costs == spent
            assert spent["bob"] > spent["ada"] == 5

    in_loop(main())
    out = io.StringIO()
    with redirect_stdout(out):
        assert run_lyra(["cost", "--by", "key", "--json", store]) == 0
    rows = {row["key"]: row["calls"] for row in json.loads(out.getvalue())["rows"]}
    assert rows == {"ada": 1, "bob": 2}


def test_metrics_count_calls_of_keys() -> None:
    """Prometheus sees the calls by model, and their cost by key."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key()
            async with served.client(key) as client:
                await client.post(PATH, json=BODY)
            text = (await served.operator.get("/metrics")).text
            assert 'llm_requests_total{model="openai/gpt-4o-mini",status="ok"} 1.0' in text
            assert 'lyra_cost_usd_total{agent="key/ci",model="openai/gpt-4o-mini"}' in text

    in_loop(main())


def test_the_store_holds_neither_keys_nor_texts(tmp_path: Path) -> None:
    """What passes through is not kept: no key of a client or a provider, no question, no answer."""
    store = str(tmp_path / "gateway.db")

    async def main() -> str:
        async with serving_gateway(store=store) as served:
            key = await served.key()
            async with served.client(key) as client:
                await client.post(PATH, json=BODY)
            return key

    key = in_loop(main())
    opened = open_store(store)
    try:
        rows = b"".join(row.data for row in opened.read())
    finally:
        opened.close()
    for text in (key, key[-32:], OPENAI_KEY, "a secret question", "hello"):
        assert text.encode() not in rows
    assert b"openai/gpt-4o-mini" in rows
