"""Programs inside other programs: values both ways, several at once, and nothing left when one is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.core.budgets.money import Money
from lyra.vega import VegaError
from lyra.vega.values.values import Duration


def value_of(source: str, **options: Any) -> Any:
    return vega.run(source, stdout=lambda _: None, stderr=lambda _: None, **options)


def test_what_main_returns_as_python():
    """Each kind of value that has a form there."""
    source = """fn main() {
        let b = str::builder();
        b.add("built");
        return [null, true, 1, 2.5, "x", $0.50, 1500ms, [1], {"k": 1, 2: "int"}, Ok(1), Err("e"), b];
    }"""
    assert value_of(source) == [
        *(None, True, 1, 2.5, "x", Money(500_000), 1.5, [1], {"k": 1, 2: "int"}),
        *({"ok": 1}, {"err": "e"}, "built"),
    ]


def test_a_function_cannot_be_returned():
    with pytest.raises(VegaError, match="a function cannot be handed over") as raised:
        value_of("fn main() { return |x| x; }")
    assert raised.value.name == "TypeError"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (None, "null"),
        (True, "bool"),
        (3, "int"),
        (2.5, "float"),
        ("x", "str"),
        (Money(1), "money"),
        (Duration(5), "duration"),
        ((1, 2), "list"),
        ({"a": 1}, "map"),
    ],
)
def test_values_of_the_host_in_the_program(given, kind):
    assert value_of("fn main() { return type(given()); }", host={"given": lambda: given}) == kind


def test_a_generator_has_no_form_in_vega():
    def numbers() -> Any:
        yield 1

    source = "fn main() { try { numbers(); } catch TypeError(r) { return r; } }"
    assert value_of(source, host={"numbers": numbers}) == "a generator from outside has no form in Vega"


def test_what_a_host_function_raises_can_be_caught_by_its_name():
    class OutOfStock(Exception):
        pass

    async def order(what: str) -> None:
        raise OutOfStock(f"no {what}")

    source = 'fn main() { try { order("tea"); } catch OutOfStock(r) { return r; } }'
    assert value_of(source, host={"order": order}) == "no tea"
    with pytest.raises(VegaError) as raised:
        value_of('let x = 1;\n  order("tea");', host={"order": order})
    assert (raised.value.name, raised.value.line, raised.value.column) == ("OutOfStock", 2, 3)


def test_several_runs_at_once_on_one_kernel():
    source = """
        agent A { model "sim/echo" }
        fn w(m) { receive { x => { m <- x + 1; } } }
        process::register("me");
        let a = spawn A;
        let p = spawn fn w(process::self());
        p <- NUMBER;
        let got = receive { x => x };
        process::sleep(10ms);
        fn main() { return [got, a <- "x${got}", process::whereis("me") == process::self()]; }
    """

    async def main() -> list[Any]:
        async with Kernel() as kernel:
            runs = (vega.run(source.replace("NUMBER", str(number)), kernel=kernel) for number in range(20))
            results = await asyncio.gather(*runs)
            assert kernel.live == 0
            return results

    assert asyncio.run(main()) == [[number + 1, f"x{number + 1}", True] for number in range(20)]


EVERYTHING = """
    agent A { model "sim/script" }
    agent M { model "sim/script" memory conversation }
    fn w() { while true { process::sleep(10ms); } }
    fn asks(a) { a <- "x"; }
    fn hosted() { forever(); }
    supervisor S { child c = fn w() }
    spawn S;
    spawn fn w();
    spawn fn w() supervised by { strategy restart };
    let a = spawn A;
    let m = spawn M;
    spawn fn asks(a);
    spawn fn asks(m);
    spawn fn hosted();
    parallel { let x = a <- "x"; let y = m <- "y"; }
"""


def test_a_run_that_is_cancelled_leaves_nothing_running():
    """Processes, agents, calls, functions of the host: all have ended when the cancelled run is over."""
    from lyra.models.client import LLMClient
    from lyra.models.script import Reply
    from lyra.models.sim import SimProvider

    told: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            told.append("cancelled")
            raise

    async def main() -> None:
        async with Kernel() as kernel:
            client = LLMClient()
            slow = Reply.from_data({"text": "late", "first_s": 1_000})
            client.register("sim", SimProvider(script=lambda _: slow))
            kernel.parts["models"] = client
            before = len(asyncio.all_tasks())
            work = asyncio.ensure_future(vega.run(EVERYTHING, kernel=kernel, host={"forever": forever}))
            await asyncio.sleep(0.2)
            assert kernel.live > 10
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert kernel.live == 0
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == before
            assert told == ["cancelled"]
            assert await vega.run("fn main() { return 1; }", kernel=kernel) == 1

    asyncio.run(asyncio.wait_for(main(), 30))


def test_when_a_run_is_over_its_processes_have_ended():
    """Not soon after: when the caller goes on."""
    source = "fn w() { process::sleep(1h); } for i in list::range(0, 50) { spawn fn w(); } process::sleep(1ms);"

    async def main() -> int:
        async with Kernel() as kernel:
            await vega.run(source, kernel=kernel)
            return kernel.live

    assert asyncio.run(main()) == 0


def test_processes_that_ended_are_not_kept_in_mind():
    """A program that goes on for ever may start processes for ever."""
    source = """
        fn w() { }
        for i in list::range(0, 3000) { spawn fn w(); process::sleep(0ms); }
        look();
    """
    kept: list[int] = []

    async def main() -> None:
        async with Kernel() as kernel:

            def look() -> None:
                (world,) = kernel.parts["vega"].values()
                kept.append(len(list(world.started)))

            await vega.run(source, kernel=kernel, host={"look": look})

    asyncio.run(main())
    assert kept[0] <= 1_001


def test_imports_are_found_by_the_function_that_is_given():
    """Nothing is read from a disk."""
    files = {"lib.vega": "fn two() { return 2; }"}
    source = 'import "lib.vega" as lib;\nprint(lib::two());'
    program = vega.compile(source, "main.vega", load=lambda name, _: (name, files[name]))
    lines: list[str] = []
    vega.run(program, stdout=lines.append)
    assert lines == ["2"]
