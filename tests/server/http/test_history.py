"""The rows of the journal over HTTP: in pages, of the caller's own, from a store or from a kernel without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.server.http.support import Served, in_loop, served, serving


async def quick(_ctx: Any) -> int:
    return 1


async def pages(parts: Served, client: Any, **query: Any) -> list[dict[str, Any]]:
    """All rows, read in pages of three."""
    rows: list[dict[str, Any]] = []
    after = 0
    while True:
        answer = await client.get("/api/history", params={"after": after, "limit": 3, **query})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        rows += page["events"]
        after = page["last_seq"]
        if not page["more"]:
            return rows


@served()
async def test_a_kernel_without_a_store_has_its_last_rows(parts: Served) -> None:
    await parts.operator.get("/api/processes")  # opens the parts
    for _ in range(4):
        await parts.kernel.run(quick)
    rows = await pages(parts, parts.operator)
    assert [row["kind"] for row in rows].count("process.created") == 4
    assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})
    created = await pages(parts, parts.operator, kind="process.created")
    assert {row["kind"] for row in created} == {"process.created"}


def test_a_store_is_read_in_pages_and_by_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(store=tmp_path / "k.db") as parts:
            await parts.kernel.spawn(quick, pid="one-process").wait()
            await parts.kernel.durable()
            rows = await pages(parts, parts.operator)
            assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
            own = await pages(parts, parts.operator, pid="one-process")
            assert {row["pid"] for row in own} == {"one-process"}
            assert own[0]["data"]["program"].endswith("quick")

    in_loop(main())


@served()
async def test_a_user_sees_the_rows_of_own_processes_alone(parts: Served) -> None:
    await parts.operator.get("/api/processes")
    await parts.kernel.run(quick)
    parts.kernel.submit("adas", user_id="ada")
    parts.kernel.submit("bobs", user_id="bob")
    seen = {row["pid"] for row in await pages(parts, parts.ada)}
    assert seen == {"adas"}
    assert (await parts.ada.get("/api/history", params={"pid": "bobs"})).status_code == 404
    assert (await parts.ada.get("/api/history", params={"pid": "none"})).status_code == 404


@served()
async def test_a_wrong_query_is_refused(parts: Served) -> None:
    wrong: list[dict[str, Any]] = [{"after": -1}, {"limit": 0}, {"limit": 10**9}, {"kind": "no.kind"}, {"x": 1}]
    for query in wrong:
        answer = await parts.operator.get("/api/history", params=query)
        assert answer.status_code == 400, query
        assert json.loads(answer.content)["error"]["code"] == "config"
