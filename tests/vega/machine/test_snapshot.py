"""A fiber can be written down and read back at any point, and its program does not notice."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import lyra.vega
from lyra.errors import BytecodeError, Divergence, SourceError
from lyra.vega.machine.fiber import Done, Fiber, OutOfFuel, VmEffect
from lyra.vega.machine.link import LinkedProgram, link
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.machine.vm import run
from lyra.vega.values.values import render
from tests.cases import ALL
from tests.language.conftest import expected, load
from tests.vega import local_host as host_module
from tests.vega.local_effects import HostProcess
from tests.vega.local_host import LocalHost

LANGUAGE = Path(__file__).parents[2] / "language"
FILES = sorted(
    path for path in LANGUAGE.rglob("*.vega") if path.parent.name != "limits" and expected(path.read_text()) is not None
)


def saved(linked: LinkedProgram, fiber: Fiber) -> Fiber:
    return from_data(linked, msgspec.msgpack.decode(msgspec.msgpack.encode(to_data(fiber))))


class SavingHost(LocalHost):
    """Replaces every fiber by its copy whenever it stops. In a long program, after 25 times, it does so each time that
    the program has run a fifth longer; with all cases, after a hundred times, every fiftieth time."""

    steps = 0
    next_save = 1

    def step(self, process: HostProcess) -> None:
        super().step(process)
        self.steps += 1
        if self.steps >= self.next_save and process.is_alive and process.fiber is not None:
            process.fiber = saved(self.linked, process.fiber)
            self.next_save = _save_after(self.steps)


def _save_after(steps: int) -> int:
    if steps < (100 if ALL else 25):
        return steps + 1
    return steps + 50 if ALL else steps * 6 // 5


def outcome(host: LocalHost, lines: list[str]) -> tuple[list[str], object]:
    end = host.run()
    return lines, None if end.error is None else (end.error.name, end.error.text, end.error.line, end.error.column)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_programs_do_not_notice_being_saved(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every language test once more, with a few hundred steps a turn, written down and read back after each."""
    try:
        program = lyra.vega.compile(path.read_text(), str(path), load=load)
    except SourceError:
        return

    def answer(name: str, _: object, message: object) -> str:
        return f"{name} heard {render(message)}"

    plain_lines: list[str] = []
    plain = outcome(LocalHost(program, plain_lines.append, answer=answer), plain_lines)
    monkeypatch.setattr(host_module, "FUEL", 1)
    saved_lines: list[str] = []
    assert outcome(SavingHost(program, saved_lines.append, answer=answer), saved_lines) == plain


SHARING = """
fn main() {
    let xs = [1];
    let ys = xs;
    let n = 0;
    let bump = || { n = n + 1; xs.push(n); return n; };
    print("saved here");
    bump();
    bump();
    print([xs, ys, n]);
    ys.push("shared");
    return xs;
}
"""


def test_what_was_shared_is_shared_again():
    linked = link(lyra.vega.compile(SHARING, "sharing.vega"))
    fiber = Fiber.start(linked)
    effect = run(fiber)
    assert isinstance(effect, VmEffect)
    assert effect.arguments == ("saved here",)
    fiber.resume()
    fiber = saved(linked, fiber)
    effect = run(fiber)
    assert isinstance(effect, VmEffect)
    assert effect.arguments == ("[[1, 1, 2], [1, 1, 2], 2]",)
    fiber = saved(linked, fiber)
    done = run(fiber)
    assert isinstance(done, Done)
    assert done.value == [1, 1, 2, "shared"]


def test_a_fiber_can_be_run_again_from_the_same_place():
    """Stepping backwards: the data is a copy, so what happens later does not change it."""
    linked = link(lyra.vega.compile(SHARING, "sharing.vega"))
    fiber = Fiber.start(linked)
    run(fiber)
    data = to_data(fiber)
    results = []
    for _ in range(2):
        again = from_data(linked, data)
        run(again)
        results.append(run(again).value)
    assert results[0] == results[1] == [1, 1, 2, "shared"]
    assert results[0] is not results[1]


def test_another_program_is_refused():
    linked = link(lyra.vega.compile(SHARING, "sharing.vega"))
    other = link(lyra.vega.compile(SHARING.replace("shared", "changed"), "sharing.vega"))
    fiber = Fiber.start(linked)
    run(fiber)
    with pytest.raises(Divergence, match="another program"):
        from_data(other, to_data(fiber))


def test_damaged_data_is_refused():
    linked = link(lyra.vega.compile(SHARING, "sharing.vega"))
    fiber = Fiber.start(linked)
    run(fiber)
    data = to_data(fiber)
    for change in (
        {"frames": []},
        {"frames": [[99, 0, [], -1]]},
        {"frames": [[0, 99, [], -1]]},
        {"heap": [["function", 99, []]]},
        {"globals": [1, 2, 3]},
        {"heap": [["list", [["@", 77]]]]},
        {"mailbox": 5},
    ):
        with pytest.raises(BytecodeError):
            from_data(linked, {**data, **change})


def test_fuel_runs_out_and_nothing_is_lost():
    source = "fn main() { let n = 0; while n < 100000 { n = n + 1; } return n; }"
    linked = link(lyra.vega.compile(source, "loop.vega"))
    fiber = Fiber.start(linked)
    turns = 0
    while isinstance(result := run(fiber, 1000), OutOfFuel):
        turns += 1
    assert isinstance(result, Done)
    assert result.value == 100000
    assert 90 <= turns <= 110
