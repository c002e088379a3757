"""Generated code against the machine: the same value, or the same error at the same place."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Literal

import pytest

from lyra import vega
from lyra.kernel.kernel import Kernel
from lyra.vega.machine.fiber import Done, Fiber, OutOfFuel
from lyra.vega.machine.link import link
from lyra.vega.machine.pure import MISS
from lyra.vega.machine.pure.kinds import Look, RowFacts
from lyra.vega.machine.pure.native import is_installed
from lyra.vega.machine.pure.switch import Pure, PureTier
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.machine.vm import run as run_fiber
from lyra.vega.runtime.driver import PROGRAMS
from lyra.vega.runtime.run import run_world
from lyra.vega.runtime.world import RunOptions, World, _has_come, _is_due
from tests.cases import ALL
from tests.cli.vega_runner import COMMAND, Vega
from tests.cli.vega_runner import vega as vega_command
from tests.limits import within
from verify.compare import vega_tiers
from verify.planted import planted
from verify.planted.vega_generated_code import BUGS, GUARDS

__all__ = ["vega_command"]  # the fixture

COUNT = int(os.environ.get("VEGA_FUNCTIONS") or (500 if ALL else 30))
SEED = int(os.environ.get("VEGA_SEED", "7"))


def test_random_functions_come_to_the_same():
    """Values with their kinds and identities, errors with their text, place and trace, arguments as they were."""
    result = vega_tiers.run(COUNT, SEED * 1_000_000)
    assert not result.failures, result.failures[0]
    assert result.taken > result.calls // 4


NOTICED = {"index": 105, "mutation": 34, "order": 176}  # the functions that need these guards are few


@pytest.mark.parametrize("guard", sorted(GUARDS.keys() - {"poll"}))
def test_a_guard_that_is_left_out_is_noticed(guard: str):
    """Each guard of generated code matters: without it some random function differs. (`poll` has tests of its own.)"""
    result = vega_tiers.Result()
    with planted(BUGS, guard):
        for number in (NOTICED.get(guard, 0), *range(1_000)):
            vega_tiers.compare(SEED * 1_000_000 + number, result, is_native=False)
            if result.failures:
                return
    raise AssertionError(f"1000 programs, and none needs {guard!r}")


@pytest.mark.parametrize(
    ("body", "right", "wrong"),
    [
        ("let xs = [1]; xs[xs.len() / 2] = xs.push(5).len(); return xs;", [2, 5], [1, 2]),
        ("let xs = [1, 2]; xs[xs.push(5).len() / 2] = xs.len(); return xs;", [1, 3, 5], [1, 2, 5]),
        ('let xs = ["a"]; let m = {}; m["k" + list::pop(xs)] = xs.len(); return m;', {"ka": 0}, {"ka": 1}),
        ("let xs = [7]; let m = {}; m[list::insert(xs, 0, 5).len()] = xs[0]; return m;", {2: 5}, {2: 7}),
    ],
)
def test_an_index_is_computed_before_the_value_that_is_stored_there(body: str, right: object, wrong: object):
    """Python does it the other way round, which shows when one of them changes the list; without its guard it would."""
    text = f"fn f() {{ {body} }}"
    results = []
    for left_out in ((), ("order",)):
        with planted(BUGS, *left_out):
            tier, pure = pure_of(text, "f")
            tier.is_eager = True
            results.append(pure([]))
    assert results == [right, wrong]


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("let xs = [7]; let ys = xs; ys[0] = -7; return xs[0] / 2;", -3),
        ("let xs = [7]; let ys = xs.push(1); ys[0] = -7; return xs[0] / 2;", -3),
        ("let xs = [1]; let ys = xs; ys.push(-5); return xs[1] % 3;", -2),
    ],
)
def test_what_one_name_of_a_list_puts_into_it_is_known_of_the_other(body: str, right: int):
    """Only of an int that is never negative Python divides as Vega does."""
    tier, pure = pure_of(f"fn f() {{ {body} }}", "f")
    tier.is_eager = True
    assert pure([]) == right


@pytest.mark.parametrize(
    ("left", "right", "quotient"), [(-7, 2, -3), (7, -2, -3), (-7.0, 2, -3.5), (1.0, 0, MISS), ("a", 2, MISS)]
)
def test_values_of_unknown_kind_are_divided_as_what_they_are(left: Any, right: Any, quotient: Any):
    """What is in a list that a function is given may be of any kind: ints are truncated, floats are not."""
    tier, pure = pure_of("fn f(xs) { return xs[0] / xs[1]; }", "f")
    tier.is_eager = True
    assert pure([[left, right]]) == quotient


def test_a_function_that_may_end_without_return_is_not_known_to_give_a_bool():
    """It gives null, which is no condition: the machine says so at its place."""
    tier, pure = pure_of(
        "fn is_one(n) { if n == 1 { return true; } } fn f(n) { if is_one(n) { return 1; } return 2; }", "f"
    )
    tier.is_eager = True
    assert pure([1]) == 1
    assert pure([2]) is MISS


# ---------------------------------------------------------------- processes that wait get their turn

LONG = """
fn loop(n) { let total = 0; let i = 0; while i < n { total = total + i % 7; i = i + 1; } return total; }
fn go(n) { return loop(n); }
"""

needs_native = pytest.mark.skipif(not is_installed(), reason="llvmlite is not installed")


def pure_of(text: str, name: str) -> tuple[PureTier, Pure]:
    linked = link(vega_tiers.program_of(text), tier=PureTier)
    pure = next(code.pure for code in linked.functions if code.name == name)
    assert isinstance(linked.tier, PureTier)
    assert isinstance(pure, Pure)
    return linked.tier, pure


FIB = "fn fib(n) { if n < 2 { return n; } return fib(n - 1) + fib(n - 2); }"


def test_a_long_call_gives_up_when_others_wait():
    """… and only then; it is trusted as before in the next turn."""
    tier, pure = pure_of(FIB, "fib")
    tier.is_eager = tier.is_strict = True
    tier.native = "never"
    assert pure([18]) == 2584  # no process waits
    tier.contended = lambda: True
    assert pure([60]) is MISS
    assert tier.paused is None
    assert pure([1]) is MISS  # the rest of the turn is the machine's
    tier.turn()
    assert pure([10]) == 55


@pytest.mark.parametrize("native", ["never", pytest.param("always", marks=needs_native)])
def test_a_long_loop_pauses_when_others_wait(native: Literal["never", "always"]):
    """… and goes on where it was in the next turn."""
    tier, pure = pure_of(LONG, "loop")
    tier.is_strict, tier.native = True, native
    tier.contended = lambda: True
    count = 2_000_000 if native == "never" else 100_000_000
    value, turns = pure([count]), 1
    while value is MISS:
        assert tier.paused is not None
        paused, tier.paused = tier.paused, None
        tier.turn()
        value, turns = paused.go_on(), turns + 1
    assert turns > 2
    assert value == sum(i % 7 for i in range(7)) * (count // 7) + sum(range(count % 7))


def test_a_paused_call_is_saved_as_one_that_has_not_begun():
    """A fiber that is saved in the middle of it makes the call again, to the same value."""
    text = f"{LONG}fn main() {{ return loop(3000000); }}"
    linked = link(vega_tiers.program_of(text), tier=PureTier)
    linked.tier.contended = lambda: True
    fiber = Fiber.start(linked)
    outcome = run_fiber(fiber, 1_000)
    while fiber.paused is None:
        outcome = run_fiber(fiber, 1_000)
    assert isinstance(outcome, OutOfFuel)
    again = from_data(linked, to_data(fiber))
    ends = []
    for saved in (fiber, again):
        while not isinstance(outcome := run_fiber(saved, 1_000), Done):
            pass
        ends.append(outcome.value)
    assert ends == [sum(i % 7 for i in range(3_000_000))] * 2


async def _answers(source: str) -> list[bool]:
    """What a run says of whether it keeps others waiting, asked while `ask()` is called."""
    answers: list[bool] = []
    world: World | None = None

    def ask() -> None:
        assert world is not None
        answers.append(world._is_contended(asyncio.get_running_loop()))

    async with Kernel() as kernel:
        options = RunOptions(write=lambda _: None, warn=lambda _: None, functions={"ask": ask})
        world = World(kernel, vega.compile(source, host_names=("ask",)), options, programs=PROGRAMS)
        await run_world(world)
    return answers


IDLE = 'fn idle() { receive { "stop" => 1 } }\n'


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("ask();", False),
        (f"{IDLE}spawn fn idle(); process::sleep(1ms); ask();", False),  # it waits for a message
        ("fn nap() { process::sleep(1h); }\nspawn fn nap(); process::sleep(1ms); ask();", False),  # for its time
        (f"{IDLE}let p = spawn fn idle(); process::sleep(1ms); p <- 1; ask();", True),  # it could run
    ],
)
def test_only_who_could_run_is_kept_waiting(source: str, wanted: bool):
    assert asyncio.run(_answers(source)) == [wanted]


def test_a_timer_that_is_due_is_kept_waiting():
    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        answers = [_is_due(loop)]
        for delay in (3_600, 0):
            loop.call_later(delay, lambda: None)
            time.sleep(0.001)  # noqa: ASYNC251 - no other task is to run
            answers.append(_is_due(loop))
        return answers

    assert asyncio.run(main()) == [False, False, True]


def test_what_can_be_read_keeps_the_loop_waiting():
    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        reader, writer = socket.socketpair()
        loop.add_reader(reader, lambda: None)
        answers = [_has_come(loop)]
        writer.send(b"x")
        answers.append(_has_come(loop))
        loop.remove_reader(reader)
        reader.close()
        writer.close()
        return answers

    assert asyncio.run(main()) == [False, True]


@pytest.mark.timed
def test_a_timer_of_the_host_fires_beside_a_long_recursion():
    """No other process runs; but the host's loop has something to do."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        before, fired = time.process_time(), []
        loop.call_later(0.01, lambda: fired.append(time.process_time() - before))
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                await vega.run(f"{FIB}\nprocess::self(); fib(30);")
        return float(fired[0])

    within(asyncio.run(main()), 0.5)


def test_without_its_poll_it_would_not():
    with planted(BUGS, "poll"):
        tier, pure = pure_of(LONG, "loop")
        tier.contended = lambda: True
        assert pure([1_000_000]) is not MISS


@pytest.mark.timed
def test_the_loop_goes_on_beside_a_long_computation():
    """Tasks and other processes get their turns: measured in CPU time, 99 of 100 within 50 ms."""
    source = LONG + (
        "fn tick(n) { for let i = 0; i < n; i = i + 1 { process::sleep(1ms); } print(n); }\n"
        "spawn fn tick(20);\nloop(200000000000);\n"
    )
    beats: list[float] = []

    async def beat() -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(0)
            beats.append(time.process_time() - before)

    async def main() -> None:
        printed = asyncio.Event()
        work = asyncio.create_task(vega.run(source, stdout=lambda _: printed.set()))
        heart = asyncio.create_task(beat())
        async with asyncio.timeout(60):
            await printed.wait()  # the other process has come to its end
        assert not work.done()
        heart.cancel()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    asyncio.run(main())
    beats.sort()
    assert len(beats) > 20
    within(beats[int(len(beats) * 0.99)], 0.05)


@needs_native
def test_what_takes_long_goes_native_and_stays_exact():
    """… when no process waits: found at work again and again, it becomes machine code in the middle of the call."""
    tier, pure = pure_of(LONG, "loop")
    wanted = sum(i % 7 for i in range(2_000_000))
    for _ in range(100):
        assert pure([2_000_000]) == wanted
        if tier.native_functions:
            break
    assert tier.native_functions
    assert pure([2_000_000]) == wanted
    assert pure([10]) == sum(i % 7 for i in range(10))


@needs_native
def test_machine_code_gives_up_when_others_wait():
    tier, pure = pure_of(LONG, "loop")
    tier.is_strict, tier.native = True, "always"
    pure([10])
    assert tier.native_functions
    tier.contended = lambda: True
    assert pure([1 << 62]) is MISS


@needs_native
def test_machine_code_does_not_use_up_the_stack():
    """Recursion that is too deep for it is the machine's, to the call: those put into one another count each."""
    tier, pure = pure_of("fn f(n) { if n < 1 { return 0; } return 1 + f(n - 1); }", "f")
    tier.is_eager, tier.is_strict, tier.native = True, True, "always"
    assert pure([1_999]) == 1_999
    assert pure([2_000]) is MISS
    assert pure([100_000_000]) is MISS


class Asked(dict[str, Any]):
    """A tier's names, and how often machine code has asked whether to stop."""

    count = 0

    def __getitem__(self, name: str) -> Any:
        self.count += name == "STOP"
        return super().__getitem__(name)


@needs_native
def test_what_is_put_into_itself_checks_and_asks_as_often_as_calls_do():
    """A small function that calls itself, whichever of those inside one another it is that overflows or asks."""
    tier, pure = pure_of("fn f(n, x) { if n < 1 { return x; } return f(n - 1, x + x) - f(n - 2, x); }", "f")
    tier.is_eager, tier.is_strict, tier.native = True, True, "always"
    calls = 0

    def f(n: int, x: int) -> int:
        nonlocal calls
        calls += 1
        return x if n < 1 else f(n - 1, x + x) - f(n - 2, x)

    for n in range(1, 12):
        assert pure([n, 1 << (62 - n)]) == f(n, 1 << (62 - n))
        assert pure([n, 1 << (63 - n)]) is MISS  # the innermost sum
    assert tier.machine_code is not None
    tier.names = asked = Asked(tier.names, PAUSE=True)  # it cannot, and is asked at each call
    for n in range(12):
        asked.count = calls = 0
        tier.machine_code.flag.value = 1
        assert (pure([n, 3]), asked.count) == (f(n, 3), calls)
    asked["STOP"] = True
    assert pure([5, 3]) is MISS


def nested(parameters: int, depth: int) -> str:
    """A function of so many parameters that calls itself in an argument of a call of itself, and so on."""
    names = [f"a{number}" for number in range(parameters)]

    def call(left: int) -> str:
        last = call(left - 1) if left else names[-1]
        return f"f({', '.join(['a0 - 1', *(f'{name} * {left + 2} + a0' for name in names[1:-1]), last])})"

    return f"fn f({', '.join(names)}) {{ if a0 < 1 {{ return a1; }} return {call(depth)}; }}"


SMALL_STACK = """
import sys, threading
from verify.compare import vega_tiers
from lyra.vega.machine.link import link
from lyra.vega.machine.pure.switch import PureTier

text, parameters = sys.stdin.read(), int(sys.argv[1])
linked = link(vega_tiers.program_of(text), tier=PureTier)
pure = next(code.pure for code in linked.functions if code.name == "f")
linked.tier.is_eager, linked.tier.is_strict, linked.tier.native = True, True, "always"
assert pure([0] * parameters) == 0 and linked.tier.native_functions
for kilobytes in sys.argv[2:]:
    threading.stack_size(int(kilobytes) * 1024)
    found = []
    work = threading.Thread(target=lambda: found.append(pure([100_000] + [0] * (parameters - 1))))
    work.start()
    work.join()
    print(kilobytes, type(found[0]).__name__)
"""


@needs_native
@pytest.mark.parametrize(
    ("parameters", "depth"),
    [(2, 0), (12, 5), *(pytest.param(*size, marks=pytest.mark.long) for size in ((2, 1), (40, 1), (60, 0)))],
)
def test_machine_code_never_goes_below_the_stack(parameters: int, depth: int):
    """However large its frames are and however small the stack of its thread: it gives up instead."""
    sizes = ("256", "512", "8192")  # kilobytes
    done = subprocess.run(
        [sys.executable, "-c", SMALL_STACK, str(parameters), *sizes],
        input=nested(parameters, depth),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "".join(f"{size} object\n" for size in sizes)), done.stderr


@needs_native
def test_what_is_large_is_not_made_machine_code():
    """LLVM would take seconds, and the process could not end meanwhile."""
    for depth, is_small in ((2, True), (20, False)):
        tier, pure = pure_of(nested(12, depth), "f")
        tier.is_eager, tier.is_strict, tier.native = True, True, "always"
        assert pure([0] * 12) == 0
        assert bool(tier.native_functions) is is_small


def test_the_price_of_generating_is_bounded():
    """Many rows of a large function would be megabytes of Python, made while everybody waits."""
    tier, pure = pure_of(nested(20, 5), "f")
    tier.is_eager, tier.native = True, "never"
    assert pure([0] * 20) == 0
    (row,) = pure.rows
    assert len(tier.solve(row)) <= 4
    large, pure = pure_of(nested(60, 10), "f")
    large.is_eager = True
    assert pure([0] * 60) is MISS


def test_a_chain_of_calls_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    """Not once for each of its links, and not again for each function that is called from outside."""
    count = 60
    links = [f"fn f{n}(x) {{ let i = 0; while i < 1 {{ i = i + f{n - 1}(x); }} return i; }}" for n in range(1, count)]
    text = "\n".join(["fn f0(x) { return x; }", *links])
    looks: list[object] = []
    look = Look.facts

    def counted(self: Look) -> RowFacts:
        looks.append(self)
        return look(self)

    monkeypatch.setattr(Look, "facts", counted)
    linked = link(vega_tiers.program_of(text), tier=PureTier)
    linked.tier.is_eager = True
    for number in reversed(range(count)):
        pure = next(code.pure for code in linked.functions if code.name == f"f{number}")
        assert pure([1]) == 1
    assert len(looks) <= 3 * count


@needs_native
def test_nothing_is_compiled_when_the_process_ends(monkeypatch: pytest.MonkeyPatch):
    """It would wait for that."""
    tier, pure = pure_of(LONG, "loop")
    assert pure([10]) == sum(i % 7 for i in range(10))
    monkeypatch.setattr(threading, "main_thread", threading.Thread)  # one that does not run
    tier.heat(pure)
    assert not tier.native_functions
    monkeypatch.undo()
    tier.heat(pure)
    assert tier.native_functions


def interrupted(command: Vega, source: str) -> tuple[int, str, str]:
    """Run a program, press Ctrl-C when it says that it is ready: its exit code, and what it says then."""
    command.write("a.vega", source)
    started = subprocess.Popen(
        [*COMMAND, "run", "a.vega"],
        cwd=command.folder,
        env={**command.env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=30)
    finally:
        started.kill()
    return started.returncode, out, err


@pytest.mark.parametrize("asks", ["", "process::self();\n"])
def test_ctrl_c_ends_a_long_computation_at_once(vega_command: Vega, asks: str):
    """Whether it runs on a kernel or needs none."""
    source = f'{LONG}{asks}print("ready");\nloop(2000000000);\n'
    assert interrupted(vega_command, source) == (130, "", "interrupted\n")


@pytest.mark.parametrize("asks", ["", "process::self();\n"])
def test_ctrl_c_ends_a_long_step(vega_command: Vega, asks: str):
    """… which lets no other process run until it is over: here two lists of many long ones are compared."""
    source = f"""
{asks}let xs = list::range(0, 200000); let one = []; let other = []; let i = 0;
let mine = []; let yours = [];
while i < 30 {{ mine.push(list::slice(xs, 0)); yours.push(list::slice(xs, 0)); i = i + 1; }}
for x in mine {{ for y in yours {{ one.push(x); other.push(y); }} }}
print("ready");
print(one == other);
"""
    assert interrupted(vega_command, source) == (130, "", "interrupted\n")


def test_arguments_with_names_are_not_taken_by_their_place():
    """Generated code passes arguments by place, so a call with names stays with the machine."""
    linked = link(
        vega_tiers.program_of("fn take(a, b) { return a - b; } fn f() { return take(b: 1, a: 5); }"), tier=PureTier
    )
    assert isinstance(linked.tier, PureTier)
    linked.tier.is_eager = True
    pure = next(code.pure for code in linked.functions if code.name == "f")
    assert pure is None or pure([]) in (4, MISS)
