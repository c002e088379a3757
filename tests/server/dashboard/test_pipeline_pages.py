"""The pages of pipelines and services: where the envelope is, what the stages gave, how services are doing."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from lyra import Kernel
from tests.server.dashboard.support import ADA, BOB, OPERATOR, Served, elements, logged_in, served, texts
from tests.server.http.test_pipelines import TWO

HOSTILE = "<b onclick=alert(1)>"


class Gate:
    """A stage that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.is_open = asyncio.Event()
        self.kernel.register_agent("first", self.first)
        self.kernel.register_agent("second", self.second)

    async def first(self, envelope: Any) -> dict[str, Any]:
        return {"heard": envelope.raw_input}

    async def second(self, envelope: Any) -> dict[str, Any]:
        await self.is_open.wait()
        return {"last": HOSTILE}


def classes(page: str, element: str) -> list[str]:
    return [str(row["class"]) for row in elements(page, element) if row.get("class")]


async def until(parts: Served, run: str, **wanted: str) -> None:
    while True:
        view = (await parts.ada.get(run)).json()
        if all(view[name] == value for name, value in wanted.items()):
            return
        await asyncio.sleep(0.01)


gate = Gate()


@served(kernel=gate.kernel)
async def test_the_envelope_is_seen_moving_through_the_graph(parts: Served) -> None:
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob:
        assert "Runs of pipelines stand here" in texts(await ada.page("/pipelines"))
        started = await parts.ada.post("/api/pipelines", json={"pipeline": TWO, "input": HOSTILE})
        run = f"/api/pipelines/{started.json()['run_id']}"
        await until(parts, run, current_stage="second")
        page = await ada.page("/pipelines")
        (path,) = {str(link["href"]) for link in elements(page, "a") if re.search(r"pipelines/run-", str(link["href"]))}
        path = path.removeprefix(".")
        page = await ada.page(path)
        assert [row for row in classes(page, "rect") if "current" in row] == ["node agent current"]
        assert [row for row in classes(page, "rect") if "passed" in row] == ["node agent passed"]
        assert [row for row in classes(page, "circle") if "envelope" in row] == ["envelope running"]
        assert [row for row in classes(page, "path") if "taken" in row] == ["edge taken"]
        await bob.page(path, status=404)
        assert "Runs of pipelines stand here" in texts(await bob.page("/pipelines"))
        gate.is_open.set()
        await until(parts, run, status="completed")
        page = await ada.page(path)
        assert [row for row in classes(page, "circle") if "envelope" in row] == ["envelope ended"]
        assert HOSTILE in texts(page)
        assert HOSTILE not in page
        assert (await ada.post(f"/acts{path}/stop")).status_code == 409


stuck = Gate()


@served(kernel=stuck.kernel)
async def test_a_run_is_stopped_by_its_user_alone(parts: Served) -> None:
    started = await parts.ada.post("/api/pipelines", json={"pipeline": TWO, "input": "x"})
    run = f"/api/pipelines/{started.json()['run_id']}"
    await until(parts, run, current_stage="second")
    pid = (await parts.ada.get(run)).json()["pid"]
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob, logged_in(parts, OPERATOR) as operator:
        assert (await bob.post(f"/acts/pipelines/{pid}/stop")).status_code == 404
        assert (await ada.post(f"/acts/pipelines/{pid}/stop")).status_code == 303
        page = await operator.page(f"/pipelines/{pid}")
        assert "user cancelled" in texts(page)
        assert elements(page, "fieldset")[0]["title"] == "The run has ended"


@served()
async def test_services_are_shown_the_worst_first(parts: Served) -> None:
    async with logged_in(parts, ADA) as ada:
        assert "register_service" in texts(await ada.page("/services"))
        parts.kernel.register_service({"name": "good", "max_concurrent": 2})
        parts.kernel.register_service({"name": HOSTILE, "max_concurrent": 4, "capabilities": ["x"]})
        parts.kernel.services.update_health(HOSTILE, "unhealthy")
        page = await ada.page("/services")
        assert [row["data-key"] for row in elements(page, "tr") if "data-key" in row] == [HOSTILE, "good"]
        assert HOSTILE not in page
        assert "1 unhealthy" in texts(page)
        (_, meter) = elements(page, "meter")
        assert (meter["value"], meter["max"]) == ("0", "2")
