"""Vega's pure functions three ways (interpreted, as generated Python, as machine code) beside CPython and Lua 5.4.

The programs are those of `vega_vm`. Generated code is measured when it is made: the first call pays for that. Goals:
generated Python at most 1.5 times CPython on fib, loops and lists, machine code at most a twentieth of it on fib and
loops. Where llvmlite or Lua is missing, its rows say so.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any, Literal

from benchmarks import vega_vm
from benchmarks.measure import Figure, Row, Size, Timing, interleave, ratio_at_most
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.machine.fiber import Done, Fiber
from lyra.vega.machine.link import link
from lyra.vega.machine.pure.native import is_installed
from lyra.vega.machine.pure.switch import PureTier
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source

LUA = """
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local function loop(n)
  local total, i = 0, 0
  while i < n do total = total + i % 7; i = i + 1 end
  return total
end
local function strings(n)
  local s, i = "", 0
  while i < n do s = s .. "x"; i = i + 1 end
  return #s
end
local function lists(n)
  local xs, i = {}, 0
  while i < n do xs[#xs + 1] = i; i = i + 1 end
  local total = 0
  for _, x in ipairs(xs) do total = total + x end
  local j = 1
  while j <= n do total = total + xs[j]; j = j + 1 end
  return total
end
local functions = {fib = fib, loop = loop, strings = strings, lists = lists}
local n = tonumber(arg[2])
local began = os.clock()
local value = functions[arg[1]](n)
print(os.clock() - began, value)
"""

Way = Literal["interpreted", "always", "never"]


def in_vega(name: str, way: Way, n: int) -> Callable[[int], Any]:
    """The function of that name, called by another, as a Python function that runs both; it has run once."""
    text = f"{vega_vm.SOURCE}fn go(n) {{ return {name}(n); }}\n"
    program = compile_module(parse(text, "bench.vega"), Source("bench.vega", text))
    linked = link(program, tier=PureTier if way != "interpreted" else None)
    if way != "interpreted":
        linked.tier.native = way
        linked.tier.is_eager = True
    index = next(index for index, function in enumerate(program.functions) if function.name == "go")

    def call(n: int) -> Any:
        done = run_fiber(Fiber.call(linked, index, [n], []), 1 << 60)
        assert isinstance(done, Done), done
        return done.value

    call(n)
    assert (way == "always") <= bool(linked.tier.native_functions if linked.tier is not None else False)
    return call


def in_lua(name: str, n: int, wanted: Any) -> Timing:
    done = subprocess.run(
        ["lua5.4", "-", name, str(n)], input=LUA, capture_output=True, text=True, timeout=120, check=True
    )
    seconds, value = done.stdout.split()
    assert int(value) == wanted
    return Timing(float(seconds), float(seconds), 1)


def run(size: Size) -> list[Row]:
    subjects: list[tuple[str, Callable[[int], Any], int, bool, bool]] = [
        ("fib({})", vega_vm.fib, size.of(25, 10), True, True),
        ("{} turns of a loop", vega_vm.loop, size.of(500_000, 100), True, True),
        ("a list of {} built, walked and indexed", vega_vm.lists, size.of(100_000, 100), True, False),
        ("{} strings joined one by one", vega_vm.strings, size.of(50_000, 100), False, False),
    ]
    rows: list[Row] = []
    for what, python, n, has_goal, is_numeric in subjects:
        rows += _rows(what.format(n), python, n, size, has_goal=has_goal, is_numeric=is_numeric)
    return rows


def _rows(
    what: str, python: Callable[[int], Any], n: int, size: Size, *, has_goal: bool, is_numeric: bool
) -> list[Row]:
    name, wanted = python.__name__, python(n)
    ways: dict[str, Way] = {"interpreted": "interpreted", "generated": "never"}
    if is_numeric and is_installed():
        ways["machine code"] = "always"
    contenders: dict[str, Callable[[], Timing]] = {"python": lambda: vega_vm.timed(python, n, wanted)}
    for label, way in ways.items():
        vega = in_vega(name, way, n)
        contenders[label] = lambda vega=vega: vega_vm.timed(vega, n, wanted)  # type: ignore[misc]
    has_lua = shutil.which("lua5.4") is not None
    if has_lua:
        contenders["lua"] = lambda: in_lua(name, n, wanted)
    best = interleave(contenders, size.repeats)
    machine_code = best.get("machine code")
    missing = is_numeric and machine_code is None
    rows = [
        Row(f"{what}, interpreted", best["interpreted"], "CPython", best["python"]),
        Row(
            f"{what}, generated",
            best["generated"],
            "CPython",
            best["python"],
            goals=(ratio_at_most(1.5),) if has_goal else (),
            note="no machine code: llvmlite is not installed" if missing else "",
        ),
        _beside_lua(f"{what}, generated", best["generated"], best.get("lua")),
    ]
    if machine_code is not None:
        goals = (ratio_at_most(0.05),)
        rows.append(Row(f"{what}, machine code", machine_code, "CPython", best["python"], goals=goals))
        rows.append(_beside_lua(f"{what}, machine code", machine_code, best.get("lua")))
    return rows


def _beside_lua(what: str, ours: Figure, lua: Figure | None) -> Row:
    return Row(what, ours, "Lua 5.4", lua, note="" if lua is not None else "lua5.4 is not installed")
