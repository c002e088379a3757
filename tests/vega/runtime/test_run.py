"""`lyra.vega.run`: from a source to its value, its output, its error."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.errors import ConfigError, SourceError
from lyra.vega import VegaError


def printed(source: str, **options: Any) -> list[str]:
    lines: list[str] = []
    vega.run(source, stdout=lines.append, stderr=lambda _: None, **options)
    return lines


def test_prints_and_gives_what_main_returns():
    out = io.StringIO()
    assert vega.run('print("top"); fn main() { return [1, "a", null]; }', stdout=out) == [1, "a", None]
    assert out.getvalue() == "top\n"


def test_in_a_running_loop_it_is_awaited():
    async def main() -> Any:
        return await vega.run("fn main() { return 42; }")

    assert asyncio.run(main()) == 42


def test_a_compiled_program_runs_as_often_as_asked():
    program = vega.compile("fn main() { return 1 + 1; }")
    assert isinstance(program, vega.Program)
    assert [vega.run(program), vega.run(program)] == [2, 2]


def test_an_uncaught_error_has_name_text_and_place():
    with pytest.raises(VegaError) as raised:
        vega.run('let x = 1;\nthrow Broken("it is");', name="a.vega")
    error = raised.value
    assert (error.name, error.text, error.file, error.line, error.column) == ("Broken", "it is", "a.vega", 2, 1)
    assert error.render() == "error[Broken]: it is\n  at a.vega:2:1"


def test_a_mistake_in_the_source_runs_nothing():
    lines: list[str] = []
    with pytest.raises(SourceError):
        vega.run('print("x"); let = 3;', stdout=lines.append)
    assert lines == []


def test_exit_of_the_main_process():
    assert vega.run('process::exit("normal"); print("never");') is None
    with pytest.raises(VegaError, match="enough") as raised:
        vega.run('process::exit("enough");')
    assert raised.value.name == "ProcessExit"


def test_a_crash_of_another_process_goes_to_stderr_only():
    warned: list[str] = []
    lines: list[str] = []
    source = 'fn w() { throw "boom"; } spawn fn w(); process::sleep(10ms); print("on");'
    vega.run(source, stdout=lines.append, stderr=warned.append)
    assert lines == ["on"]
    assert "boom" in warned[0]


def test_the_end_of_a_linked_process_ends_the_main_one():
    with pytest.raises(VegaError, match="boom") as raised:
        printed('fn w() { process::sleep(1ms); throw "boom"; } process::link(spawn fn w()); process::sleep(1m);')
    assert raised.value.name == "ProcessExit"


def test_host_functions_get_and_give_values():
    got: list[Any] = []

    def keep(*values: Any) -> dict[str, Any]:
        got.extend(values)
        return {"sum": sum(values[0]), "tuple": (1, 2.5)}

    lines = printed(
        'let r = keep([1, 2], {"k": $0.50}, 1500ms); print(r["sum"]); print(r["tuple"]);', host={"keep": keep}
    )
    assert lines == ["3", "[1, 2.5]"]
    assert got == [[1, 2], {"k": 500_000}, 1.5]


def test_host_functions_may_be_async_and_may_fail():
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    def broken() -> None:
        raise KeyError("nothing there")

    source = 'print(later(1)); try { broken(); } catch KeyError(r) { print("caught " + r); }'
    assert printed(source, host={"later": later, "broken": broken}) == ["2", "caught 'nothing there'"]


def test_a_value_without_a_form_in_vega_is_an_error():
    assert printed("try { odd(); } catch TypeError(r) { print(r); }", host={"odd": object}) == [
        "a object from outside has no form in Vega"
    ]
    assert printed("try { big(); } catch Overflow(r) { print(1); }", host={"big": lambda: 2**70}) == ["1"]


def test_import_python_only_where_it_is_allowed():
    source = 'import python "math:gcd" as gcd; try { print(gcd(12, 18)); } catch CapabilityDenied(r) { print("no"); }'
    assert printed(source) == ["no"]
    assert printed(source, python=["math:gcd"]) == ["6"]


def test_arguments_reach_the_program():
    assert printed("print(env::args());", args=["a", "b"]) == ["[a, b]"]


def test_model_takes_the_place_of_every_agents():
    source = 'agent A { model "claude-sonnet-4-20250514" } let a = spawn A; print(a <- "hi");'
    assert printed(source, model="sim/echo") == ["hi"]


def test_without_a_key_the_error_names_it(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    source = 'agent A { model "claude-sonnet-4-20250514" } let a = spawn A; print(a <- "hi");'
    with pytest.raises(VegaError, match="ANTHROPIC_API_KEY"):
        printed(source)


def test_budget_of_the_whole_run():
    assert printed("print(budget::limit()); print(budget::used());", budget="$2.00") == ["2", "0"]


def test_on_a_kernel_of_ones_own_nothing_is_left_behind():
    async def main() -> None:
        async with Kernel() as kernel:
            lines: list[str] = []
            source = """
                agent A { model "sim/echo" }
                fn w() { receive { x => {} } }
                supervisor S { strategy restart child named = fn w() }
                spawn S;
                let a = spawn A;
                let p = spawn fn w();
                let q = spawn fn w() supervised by { strategy restart };
                print(a <- "hi");
            """
            await vega.run(source, kernel=kernel, stdout=lines.append)
            assert lines == ["hi"]
            for _ in range(20):
                await asyncio.sleep(0)
            assert kernel.live == 0
            await vega.run("fn main() { return 1; }", kernel=kernel)

    asyncio.run(main())


def test_a_kernel_is_used_where_it_runs():
    with pytest.raises(ConfigError, match="belongs to one event loop"):
        vega.run("", kernel=Kernel())


def test_settings_are_those_of_lyra():
    with pytest.raises(ConfigError):
        vega.run("print(1);", settings={"kernel.no_such_thing": 1})


def test_variables_with_keys_are_not_readable(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret-secret")
    monkeypatch.setenv("COLOUR", "blue")
    source = """
        print(env::get("COLOUR")); print(env::get("NO_SUCH", "x")); print(env::has("COLOUR"));
        try { print(env::get("ANTHROPIC_API_KEY")); } catch CapabilityDenied(r) { print("no"); }
    """
    assert printed(source) == ["blue", "x", "true", "no"]


def test_ten_thousand_processes_in_a_chain():
    source = """
        fn link(n, main) { if n == 0 { main <- "end"; } else { spawn fn link(n - 1, main); } }
        spawn fn link(10000, process::self());
        receive { m => { print(m); } }
    """
    assert printed(source) == ["end"]


def test_a_busy_process_lets_the_others_run():
    source = """
        fn busy() { while true { } }
        fn chatty(p) { while true { p <- 1; } }
        fn sink() { while true { receive { x => {} } } }
        spawn fn busy();
        spawn fn chatty(spawn fn sink());
        process::sleep(5ms);
        print("alive");
    """
    assert printed(source) == ["alive"]
