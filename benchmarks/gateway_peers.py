"""The gateway beside the LiteLLM proxy: the same fake provider, the same requests, one run, a process each.

Ours is `lyra serve --gateway` on SQLite, with a key that has a budget and its spending in the store. LiteLLM keeps
keys, budgets of keys and records of spending in PostgreSQL only: here it has its master key and a budget of the whole
proxy in memory, and keys, budgets of keys and records are off. Both have one worker, and LiteLLM logs errors only.
LiteLLM is installed by `.ci/litellm`, in a virtual environment of its own; without it the gateway is measured alone.
Delays are what a gateway adds to the direct call. `large`, `tools` and `long` are shapes that nothing was tuned for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.gateway_load import Answer, Provider, ServerProcess, Target, one_by_one, under_load
from benchmarks.measure import Figure, Row, Size, at_most

_TOKEN: Final = "benchmark-token-0123456789"
_MASTER: Final = "sk-benchmark-master-key"
_PROVIDER_KEY: Final = "sk-benchmark-provider-key"
_START_S: Final = 120.0
_CONNECTIONS: Final = (1, 16, 64)
_SHAPES: Final = {
    "whole": "an answer",
    "stream": "a streamed answer",
    "large": "a prompt of 200 kB",
    "tools": "64 tools",
    "long": "a stream of 64 kB in 1024 pieces",
}
_CONFIG: Final = """
model_list:
  - model_name: gpt-4o-mini
    litellm_params:
      model: openai/gpt-4o-mini
      api_base: http://127.0.0.1:{port}/v1
      api_key: {key}
general_settings:
  master_key: {master}
litellm_settings:
  max_budget: 1000
  budget_duration: 30d
"""


class _Lyra:
    """`lyra serve --gateway`."""

    title = "Lyra"

    def __init__(self, folder: Path, provider_port: int) -> None:
        self._folder = folder
        self._env = {
            "LYRA_TOKEN": _TOKEN,
            "OPENAI_API_KEY": _PROVIDER_KEY,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{provider_port}/v1",
            "XDG_DATA_HOME": str(folder),
        }
        self.server = self._start()
        self._key = self._create_key()

    def _start(self) -> ServerProcess:
        words = ["serve", "--gateway", "--grpc", "none", "--http", "127.0.0.1:0", "--db", "gateway.db"]
        command = [sys.executable, "-m", "lyra", *words]
        server = ServerProcess(command, folder=self._folder, env=self._env, says=True)
        line = server.first_line()
        server.require() if not line else None
        self._url = json.loads(line)["http"]
        return server

    def _create_key(self) -> str:
        request = urllib.request.Request(
            f"{self._url}/api/keys",
            data=json.dumps({"name": "benchmark", "budget": "$1000"}).encode(),
            headers={"authorization": f"Bearer {_TOKEN}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["key"])

    @property
    def target(self) -> Target:
        return Target(int(self._url.rpartition(":")[2]), self._key, "openai/gpt-4o-mini")

    def restart(self) -> None:
        self.server.stop()
        self.server = self._start()


class _LiteLlm:
    """The `litellm` command."""

    def __init__(self, folder: Path, provider_port: int, environment: Path) -> None:
        version = "from importlib.metadata import version; print(version('litellm'))"
        told = subprocess.run(
            [environment / "bin" / "python", "-c", version], capture_output=True, text=True, check=True
        )
        self.title = f"LiteLLM {told.stdout.strip()}"
        self._command = str(environment / "bin" / "litellm")
        # It adds the folder above the one above the current one to the path of modules.
        self._folder = folder / "proxy" / "work"
        self._folder.mkdir(parents=True)
        config = _CONFIG.format(port=provider_port, key=_PROVIDER_KEY, master=_MASTER)
        (self._folder / "config.yaml").write_text(config)
        self._start()

    def _start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        words = ["--config", "config.yaml", "--host", "127.0.0.1", "--port", str(self._port), "--num_workers", "1"]
        # Without a network its list of prices would be fetched in vain, three times, before it starts.
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
        env |= {"PYTHONPATH": "", "HOME": str(self._folder)}
        self.server = ServerProcess([self._command, *words], folder=self._folder, env=env)

    @property
    def target(self) -> Target:
        return Target(self._port, _MASTER, "gpt-4o-mini")

    def restart(self) -> None:
        self.server.stop()
        self._start()


def _environment() -> Path | None:
    """Where `.ci/litellm` has installed it."""
    usual = Path(__file__).parents[1] / ".venv" / "litellm"
    folder = Path(os.environ.get("LYRA_BENCH_LITELLM") or usual)
    return folder if (folder / "installed").exists() else None


@contextlib.contextmanager
def _contenders(provider: Provider, *, alone: bool) -> Iterator[list[Any]]:
    with tempfile.TemporaryDirectory(prefix="lyra-gateways-") as name:
        contenders: list[Any] = [_Lyra(Path(name), provider.port)]
        try:
            environment = _environment()
            if environment is not None and not alone:
                contenders.append(_LiteLlm(Path(name), provider.port, environment))
            yield contenders
        finally:
            for contender in contenders:
                contender.server.stop()


# ---------------------------------------------------------------- measuring
async def _first_answer(contender: Any) -> None:
    """Wait until a server that was just started has answered a call."""
    end = time.perf_counter() + _START_S
    while True:
        try:
            await one_by_one({"": contender.target}, "whole", 0)
            await under_load(contender.target, "whole", connections=1, seconds=0.001)
            return
        except (OSError, asyncio.IncompleteReadError):
            contender.server.require()
            if time.perf_counter() > end:
                raise
            await asyncio.sleep(0.02)


def _cold_starts(contenders: list[Any], repeats: int) -> dict[str, tuple[float, float]]:
    """Seconds of CPU and of wall time from the start to the first answer, the best of some."""
    times: dict[str, list[tuple[float, float]]] = {contender.title: [] for contender in contenders}
    for _ in range(repeats):
        for contender in contenders:
            contender.server.stop()
            began = time.perf_counter()
            contender.restart()
            asyncio.run(_first_answer(contender))
            times[contender.title].append((contender.server.cpu_s(), time.perf_counter() - began))
    return {title: (min(cpu for cpu, _ in rows), min(wall for _, wall in rows)) for title, rows in times.items()}


def _loads(contenders: list[Any], size: Size) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Milliseconds of CPU of a call, and calls a second; the best of some, by contender, shape and connections."""
    best: dict[tuple[str, str, int], tuple[float, float]] = {}
    for _ in range(size.of(2, 1)):
        for shape in ("whole", "stream"):
            for connections in _CONNECTIONS:
                for contender in contenders:
                    cpu, began = contender.server.cpu_s(), time.perf_counter()
                    load = under_load(
                        contender.target, shape, connections=connections, seconds=size.of(3_000, 100) / 1_000
                    )
                    count = asyncio.run(load)
                    rate = count / (time.perf_counter() - began)
                    cpu_ms = (contender.server.cpu_s() - cpu) * 1e3 / count
                    key = (contender.title, shape, connections)
                    known = best.get(key, (cpu_ms, rate))
                    best[key] = (min(known[0], cpu_ms), max(known[1], rate))
    return best


def run(size: Size) -> list[Row]:
    """At quick sizes LiteLLM is left out: its start alone takes longer than the rest."""
    with Provider() as provider, _contenders(provider, alone=size.quick) as contenders:
        for contender in contenders:
            asyncio.run(_first_answer(contender))
        idle = {contender.title: contender.server.memory_mib() for contender in contenders}
        targets = {"": Target(provider.port, _PROVIDER_KEY, "gpt-4o-mini")}
        targets |= {contender.title: contender.target for contender in contenders}
        counts = {shape: size.of(200, 5) for shape in _SHAPES} | {shape: size.of(50, 3) for shape in ("long", "paused")}
        answers = {shape: asyncio.run(one_by_one(targets, shape, count)) for shape, count in counts.items()}
        loads = _loads(contenders, size)
        peak = {contender.title: contender.server.memory_mib(peak=True) for contender in contenders}
        cold = _cold_starts(contenders, size.of(2, 1))
    titles = [contender.title for contender in contenders]
    return [*_delay_rows(titles, answers), *_load_rows(titles, loads), *_process_rows(titles, idle, peak, cold)]


# ---------------------------------------------------------------- the table
def _row(what: str, figures: list[Figure], titles: list[str], **more: Any) -> Row:
    if len(figures) == 1:
        return Row(what, figures[0], **more)
    return Row(what, figures[0], titles[1], figures[1], **more)


def _percentile(values: list[float], part: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def _delay_rows(titles: list[str], answers: dict[str, dict[str, list[Answer]]]) -> list[Row]:
    def added(what: str, shape: str, field: str, part: int, **more: Any) -> Row:
        direct, *others = (
            _percentile([getattr(answer, field) for answer in answers[shape][title]], part) for title in ["", *titles]
        )
        figures = [Figure(other - direct, "ms") for other in others]
        return _row(f"{what}, p{part}", figures, titles, note=f"{direct:.2f} ms directly", **more)

    goal = (at_most(5.0, "ms"),)
    rows = []
    for shape, what in _SHAPES.items():
        goals = goal if shape in ("whole", "stream") else ()
        rows.append(added(f"Delay added to {what}", shape, "whole_ms", 50, goals=goals))
        rows.append(added(f"Delay added to {what}", shape, "whole_ms", 95))
    rows += [added("Delay added to the first token of a stream", "paused", "first_ms", part) for part in (50, 95)]
    return rows


def _load_rows(titles: list[str], loads: dict[tuple[str, str, int], tuple[float, float]]) -> list[Row]:
    rows = []
    for shape, what in (("whole", "Calls"), ("stream", "Streamed calls")):
        for connections in _CONNECTIONS:
            measured = [loads[title, shape, connections] for title in titles]
            figures = [Figure(rate, "/s") for _, rate in measured]
            note = " beside ".join(f"{cpu_ms:.2f}" for cpu_ms, _ in measured) + " ms of CPU each"
            rows.append(_row(f"{what} a second, {connections} at a time", figures, titles, note=note))
    return rows


def _process_rows(
    titles: list[str], idle: dict[str, float], peak: dict[str, float], cold: dict[str, tuple[float, float]]
) -> list[Row]:
    walls = " beside ".join(f"{cold[title][1]:.2f}" for title in titles)
    return [
        _row("Memory after the first answer", [Figure(idle[title], "MiB") for title in titles], titles),
        _row("Memory at the most, under load", [Figure(peak[title], "MiB") for title in titles], titles),
        _row(
            "From the start to the first answer",
            [Figure(cold[title][0], "s", cold[title][1]) for title in titles],
            titles,
            note=f"{walls} s by the clock",
        ),
    ]
