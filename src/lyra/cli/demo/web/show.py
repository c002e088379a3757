"""Serves the web demo on this machine, opens the page and waits for Ctrl-C.

The server listens on loopback with a token that is made for this run; the address that is printed has it. What the team
does is in its own store, which is removed at the end unless the caller keeps it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import webbrowser
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from msgspec.structs import replace

from lyra.cli.demo.web.agents import CHANGE_BUDGET, TEAM, TEAM_BUDGET, DemoPrograms, make_cast
from lyra.cli.process_io import on_stop_signal
from lyra.cli.render import note
from lyra.core.address import Address
from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.errors import LyraError
from lyra.kernel.kernel import Kernel
from lyra.server.dashboard.pages.overview import set_welcome
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings

if TYPE_CHECKING:
    from lyra.core.envelope import Envelope
    from lyra.kernel.programs.handle import Handle
    from lyra.kernel.services.service import ServiceRequest
    from lyra.vesper.effects.request import Effects
    from lyra.vesper.ir import NodeProgram
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Execution, Outcome


_DRAIN_S: Final = 1.0  # nothing here has to be finished


class WebDemo(NamedTuple):
    """What a person asked for: a port (0: any), whether to open the page, and how to run it."""

    store: str
    folder: Path
    port: int
    opens: bool
    as_json: bool
    seed: int
    pace: float


def run_web_demo(demo: WebDemo) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    logging.getLogger("lyra").setLevel(logging.ERROR)  # the page shows what waits and what crashed
    asyncio.run(_serve(demo))


async def _serve(demo: WebDemo) -> None:
    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    token = Entropy().token()
    settings = ServeSettings(
        tokens=TokenTable({token: TokenHolder("you")}), http=Address("127.0.0.1", demo.port), drain_s=_DRAIN_S
    )
    await live_through_past(demo.store, demo.folder, seed=demo.seed)
    scene = Scene(demo.folder, seed=demo.seed, pace=demo.pace)
    try:
        async with Server(Kernel(demo.store), settings, setup=scene.prepare) as server, asyncio.TaskGroup() as group:
            work = group.create_task(Office(scene, FIRST_ROUND).run())
            address = server.ready_line()["http"]
            url = f"{address}/?token={token}"
            if demo.as_json:
                click.echo(json.dumps({"http": address, "url": url, "token": token}))
            else:
                click.echo(url)
                note("A team of agents is at work behind this page. Ctrl-C ends it; nothing leaves this machine.")
            sys.stdout.flush()
            if demo.opens:
                await asyncio.to_thread(webbrowser.open, f"{address}/?token={token}")
            await stopped.wait()
            work.cancel()
    finally:
        await scene.close()


_DAY_S: Final = 86_400.0
_ROUNDS_A_DAY: Final = (3, 5, 2, 6, 4, 1)  # of the days before today, the oldest first
_PACE: Final = 0.01
_PATIENCE_S: Final = 20.0
FIRST_ROUND: Final = sum(_ROUNDS_A_DAY)  # of the demo itself


class BehindClock(SystemClock):
    """The machine's clock, with a wall clock that is `behind_s` behind."""

    __slots__ = ("behind_s",)

    def __init__(self, behind_s: float) -> None:
        self.behind_s = behind_s

    def now(self) -> float:
        return SystemClock.now() - self.behind_s


async def live_through_past(store: str, folder: Path, *, seed: int) -> None:
    """Let the team work for the days before today."""
    number = 0
    for days_ago, rounds in zip(range(len(_ROUNDS_A_DAY), 0, -1), _ROUNDS_A_DAY, strict=True):
        scene = Scene(folder, seed=seed, pace=_PACE, has_nodes=False)
        async with Kernel(store, BehindClock(days_ago * _DAY_S)) as kernel:
            await scene.prepare(kernel)
            office = Office(scene, number)
            changes = [office.change(1042 + office.take_number(), with_trouble=False) for _ in range(rounds)]
            async with asyncio.timeout(_PATIENCE_S):
                for change in changes:
                    await change.wait()
        number = office.round


ROUNDS_MAX: Final = 1_000
QUESTIONS_MAX: Final = 3
_BRISK_ROUNDS: Final = 100
_BRISK_S: Final = 5.0
_QUIET_S: Final = 30.0
_TITLES: Final = (
    "page through the export",
    "check tokens in constant time",
    "rename two functions",
    "show amounts with cents",
    "retry uploads that time out",
    "sort search results by date",
)
_log: Final = logging.getLogger("lyra.demo")


class Office:
    """See the module."""

    def __init__(self, scene: Scene, first_round: int = 0) -> None:
        self._scene = scene
        self._first_round = first_round
        self._last_round = first_round + ROUNDS_MAX
        self._brisk_until = first_round + _BRISK_ROUNDS
        self.round = first_round

    @property
    def _kernel(self) -> Kernel:
        return self._scene.kernel

    async def run(self) -> None:
        """Bring work until there is none left; ends with its task."""
        async with asyncio.TaskGroup() as group:
            while self.round < self._last_round:
                group.create_task(self.bring(self.take_number()))
                await asyncio.sleep(_BRISK_S if self.round < self._brisk_until else _QUIET_S)

    def take_number(self) -> int:
        """Return the number of the next round."""
        self.round += 1
        return self.round - 1

    async def bring(self, number: int) -> None:
        """Do the work of one round; ends when its pipeline has ended."""
        try:
            self.change(1042 + number)
            if len(self._kernel.interrupts.list_interrupts(status="pending")) < QUESTIONS_MAX:
                # Bring a letter that leads to a question of an agent, or a release that asks for its version.
                order = number - self._first_round
                if order % 4 == 0:
                    with suppress(LyraError):
                        await self._kernel.send("refunds", {"text": f"Please pay order A-{1042 + number} back."})
                elif order % 6 == 1:
                    name = f"release {1042 + number}"
                    self._kernel.spawn(self._scene.programs.release, 1042 + number, name=name, budget=CHANGE_BUDGET)
            await asyncio.to_thread(self._execute, number)
            await self._kernel.dispatch(str(SERVICES[number % 2]["name"]), {"metadata": {"round": str(number)}})
            if number % 3 == 0:
                await self._newsletter(number)
        except LyraError as error:  # the page shows it where it happened; the next round comes all the same
            _log.debug("round %d: %s", number, error)

    def change(self, number: int, *, with_trouble: bool = True) -> Handle[Any]:
        """Have a change reviewed; now and then with trouble: a model that fails, or too little money."""
        change_title = _TITLES[(number + self._scene.seed) % len(_TITLES)]
        trouble = "security" if number % 5 == 4 else "correctness" if number % 17 == 9 else ""
        budget = (
            "$0.001" if with_trouble and number % 11 == 3 else CHANGE_BUDGET
        )  # one that cannot pay for its first step
        program = self._scene.programs.change
        trouble = trouble if with_trouble else ""
        return self._kernel.spawn(program, number, change_title, trouble, name=f"change {number}", budget=budget)

    def _execute(self, number: int) -> None:
        self._scene.execute_node("shipping_quote_v1", 200 if number < self._brisk_until else 5)
        self._scene.execute_node("order_total_v1", 8)
        self._scene.execute_node("loyalty_points_v1", 3)

    async def _newsletter(self, number: int) -> None:
        envelope = {"raw_input": f"newsletter {number // 3 + 1}"}
        async for _event in self._kernel.execute_pipeline(PIPELINE, envelope, pid=f"newsletter-{number // 3 + 1}"):
            pass


# What there is in the kernel of the web demo: `Scene` makes the agents, the team, a pipeline, services and nodes.

PIPELINE: Final[dict[str, Any]] = {
    "name": "newsletter",
    "agents": [
        {"name": "draft", "default_next": "check"},
        {
            "name": "check",
            "routing_rules": [{"condition": "ok", "value": True, "target": "send"}],
            "default_next": "draft",
        },
        {"name": "send", "default_next": "end"},
    ],
    "edge_limits": [{"from": "check", "to": "draft", "max_count": 3}],
}
SERVICES: Final = (
    {"name": "search", "service_type": "worker", "max_concurrent": 8, "capabilities": ["lookup"]},
    {"name": "mailer", "service_type": "worker", "max_concurrent": 4},
    {"name": "archive", "service_type": "worker", "max_concurrent": 2},
)
# Executions before the page is opened, each step followed by a promotion where the evidence allows one.
_FIRST_EXECUTIONS: Final = {"shipping_quote_v1": (300, 900), "order_total_v1": (100,), "loyalty_points_v1": (300, 100)}


class Scene:
    """See the module. `folder` is for the nodes' own store; `pace` is 0.0 without pauses."""

    def __init__(
        self, folder: Path, *, seed: int = 1, pace: float = 1.0, has_past: bool = True, has_nodes: bool = True
    ) -> None:
        """Without a past the nodes have not been executed yet."""
        self._has_past = has_past
        self._has_nodes = has_nodes
        self.seed = seed
        self.pace = pace
        self._folder = folder
        self._kernel: Kernel | None = None
        self._runtime: Runtime | None = None
        self._nodes: dict[str, Node] = {}
        self._executed = dict.fromkeys(NODES, 0)
        self.cast = make_cast(self.status, seed=seed, pace=pace)
        self.programs = DemoPrograms(self.cast, pace)

    @property
    def kernel(self) -> Kernel:
        assert self._kernel is not None
        return self._kernel

    @property
    def runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    def status(self) -> str:
        """Return how the team is doing, in words."""
        alive = [process for process in self.kernel.processes.values() if process.alive]
        questions = self.kernel.interrupts.list_interrupts(status="pending")
        return f"{len(alive)} processes alive, {len(questions)} questions wait for a person"

    async def prepare(self, kernel: Kernel) -> None:
        self._kernel = kernel
        for name, agent in self.cast.items():
            kernel.register_agent(name, agent)
        for program in self.programs.all():
            kernel.register(program)
        for stage in (self._draft, self._check, self._send):
            kernel.register_agent(stage.__name__.strip("_"), stage)
        for service in SERVICES:
            kernel.register_service(service)
            kernel.register_handler(str(service["name"]), self._serve)
        kernel.services.update_health("mailer", "degraded")
        set_welcome(kernel, TITLE, LINES)
        await kernel.supervise(self.programs.tree(), pid=TEAM, name=TEAM, budget=TEAM_BUDGET)
        if self._has_nodes:
            await asyncio.to_thread(self._open_nodes)

    async def close(self) -> None:
        if self._runtime is not None:
            await asyncio.to_thread(self._runtime.close)

    def _open_nodes(self) -> None:
        from lyra.server.http.mounted_nodes import mount_nodes
        from lyra.vesper.nodes import load
        from lyra.vesper.runtime.runtime import Runtime

        self._nodes = {node_id: load(text) for node_id, text in NODES.items()}
        self._runtime = Runtime(store=str(self._folder / "nodes.db"), direct=MistakenPath())
        mount_nodes(self.kernel, self._runtime, self._nodes.values())
        for node_id, counts in _FIRST_EXECUTIONS.items() if self._has_past else ():
            self._runtime.set_mode(self._nodes[node_id], "shadow_direct", force=True)
            for count in counts:
                self.execute_node(node_id, count)
                self._promote(self._nodes[node_id])

    def _promote(self, node: Node) -> None:
        with suppress(LyraError):  # the evidence does not suffice yet, or there is a divergence
            self.runtime.promote(node)

    def execute_node(self, node_id: str, count: int) -> None:
        """Execute a node with its next inputs; blocks."""
        for _ in range(count):
            number = self._executed[node_id]
            self._executed[node_id] = number + 1
            self.runtime.execute(self._nodes[node_id], inputs_of(node_id, number))

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.pace)

    async def _draft(self, envelope: Envelope) -> dict[str, Any]:
        await self._pause(1.5)
        return {"text": f"{envelope.raw_input}, draft {envelope.iteration + 1}"}

    async def _check(self, envelope: Envelope) -> dict[str, Any]:
        await self._pause(1.0)
        return {"ok": envelope.iteration >= 1}

    async def _send(self, envelope: Envelope) -> dict[str, Any]:
        await self._pause(0.8)
        return {"sent": envelope.raw_input}

    async def _serve(self, request: ServiceRequest) -> dict[str, Any]:
        await self._pause(0.2)
        return {"round": request.metadata.get("round", "")}


# What the web demo says above its overview: for a person who has not heard of Lyra, in a minute.
TITLE: Final = "This is a team of agents at work"

# A word, a sentence, the page that shows it, and the words of the link.
LINES: Final = (
    (
        "Supervised.",
        "Every agent is a process below a supervisor. One that crashes is started again: watch the restarts below.",
        "/processes",
        "See the tree",
    ),
    (
        "Budgeted.",
        "Money is set aside before each model call and settled after it. A change without enough money is refused.",
        "/costs",
        "See what it costs",
    ),
    (
        "Resumable.",
        "Every step is in a journal. After a crash a run goes on where it was, and nothing finished is done again.",
        "/runs",
        "Step through a run",
    ),
    (
        "Asks you.",
        "Where an agent needs a person it waits, for hours if it must, and spends nothing meanwhile.",
        "/inbox",
        "Answer a question",
    ),
    ("Try it.", "The model is simulated and nothing leaves this machine.", "/chat/guide", "Ask the guide what this is"),
)


_LOYALTY: Final = "loyalty_points_v1"
_LARGE: Final = 950  # euros, from where the planted mistake shows
_CLEAN: Final = 300  # executions before the first large order

NODES: Final[dict[str, str]] = {
    "shipping_quote_v1": """\
node_id: shipping_quote_v1
type: function
intent: Quote the price of a shipment
inputs:
  weight: {type: decimal, constraints: [positive]}
  country: string
outputs:
  success: {price: decimal}
  error: {error_code: "enum[too_heavy]", message: string}
contracts:
  postconditions: [success => price > 0]
flow:
  - step: check_weight
    operation: validation
    guards: [weight <= 30]
    on_failure: {return_error: {error_code: too_heavy, message: "{weight} kg is more than 30 kg"}}
  - step: choose_zone
    operation: conditional
    condition: country == "DE"
    then:
      - {step: home, operation: arithmetic, expression: "4.90", output: base}
    else:
      - {step: abroad, operation: arithmetic, expression: "9.90", output: base}
  - {step: find, operation: arithmetic, expression: base + weight * 0.35, scale: 2, rounding: half_up, output: price}
""",
    "order_total_v1": """\
node_id: order_total_v1
type: function
intent: Add tax to the total of an order
inputs:
  subtotal: {type: decimal, scale: 2, min: 0}
  tax_percent: {type: decimal, default: "19", min: 0, max: 50}
outputs:
  success: {tax: decimal, total: decimal}
  error: {error_code: "enum[invalid]", message: string}
contracts:
  postconditions: [success => total == subtotal + tax]
flow:
  - step: find_tax
    operation: arithmetic
    expression: subtotal * tax_percent / 100
    scale: 2
    rounding: half_up
    output: tax
  - {step: find_total, operation: arithmetic, expression: subtotal + tax, output: total}
""",
    _LOYALTY: """\
node_id: loyalty_points_v1
type: function
intent: Count the points of an order
inputs:
  total: {type: decimal, scale: 2, min: 0}
outputs:
  success: {points: decimal}
  error: {error_code: "enum[invalid]", message: string}
flow:
  - {step: count, operation: arithmetic, expression: total / 10, scale: 0, rounding: half_up, output: points}
""",
}


class MistakenPath:
    """The direct path, with one mistake: one loyalty point too many for large orders."""

    def __init__(self) -> None:
        from lyra.vesper.runtime.paths import DirectPath

        self._direct = DirectPath()

    def run(self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution) -> Outcome:
        outcome: Outcome = self._direct.run(program, inputs, execution)
        if program.node_id == _LOYALTY and outcome.error is None and outcome.outputs["points"] >= _LARGE // 10:
            return replace(outcome, outputs={**outcome.outputs, "points": outcome.outputs["points"] + 1})
        return outcome

    def start(
        self, program: NodeProgram, inputs: Mapping[str, Any], execution: Execution, effects: Effects
    ) -> Awaitable[Outcome]:
        pending: Awaitable[Outcome] = self._direct.start(program, inputs, execution, effects)
        return pending


def inputs_of(node_id: str, number: int) -> dict[str, Any]:
    """Return the inputs of the execution of that number; enough of them differ for a promotion."""
    if node_id == "shipping_quote_v1":
        kilograms = 31 if number % 40 == 39 else 1 + number * 7 % 29  # one parcel in forty is too heavy
        return {"weight": f"{kilograms}.{number % 100:02}", "country": ("DE", "FR", "IT")[number % 3]}
    if node_id == "order_total_v1":
        return {"subtotal": f"{number * 131 % 400}.{number % 100:02}"}
    return {"total": f"{number * 97 % (960 if number > _CLEAN else 900)}.00"}
