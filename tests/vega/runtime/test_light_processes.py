"""Light processes: they behave like any other, and every reader sees them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.kernel.cleanup import clean
from lyra.vega import VegaError
from lyra.vega.runtime.light_processes import LightProcesses


def light_processes_of(kernel: Kernel) -> LightProcesses:
    (world,) = kernel.parts["vega"].values()
    assert isinstance(world.light_processes, LightProcesses)
    return world.light_processes


class Run:
    """One program on a kernel of its own; `look` in the program calls a function of the test with the kernel."""

    def __init__(self, source: str, look: Callable[[Kernel, Any], Any] | None = None, **options: Any) -> None:
        self.lines: list[str] = []
        self.warned: list[str] = []
        self.alive = -1
        self.left = -1
        self._program = vega.compile(source, host_names=("look",))
        self._look = look
        self.value = asyncio.run(self._run(options))

    async def _run(self, options: dict[str, Any]) -> Any:
        async with Kernel(**options) as kernel:

            def look(what: Any = None) -> Any:
                return self._look(kernel, what) if self._look is not None else None

            try:
                return await vega.run(
                    self._program,
                    kernel=kernel,
                    stdout=self.lines.append,
                    stderr=self.warned.append,
                    host={"look": look},
                )
            finally:
                await asyncio.sleep(0.01)
                self.alive = kernel.live
                self.left = len(kernel.processes.guests)


IDLE = "fn idle() { receive { x => {} } }\n"


def test_a_process_that_only_waits_is_light_until_it_is_looked_up():
    def look(kernel: Kernel, _: Any) -> list[Any]:
        light_processes = light_processes_of(kernel)
        (pid,) = light_processes.light
        was = [pid in kernel.processes, len(kernel.processes), kernel.live, pid in light_processes.light]
        process = kernel.lookup(pid)
        assert process is not None
        return [
            *was,
            process.pid == pid,
            process.state,
            pid in light_processes.light,
            len(kernel.processes),
            kernel.live,
        ]

    ran = Run(IDLE + "fn main() { spawn fn idle(); process::sleep(1ms); return look(); }", look)
    assert ran.value == [True, 2, 2, True, True, "waiting", False, 2, 2]
    assert (ran.alive, ran.left) == (0, 0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda kernel: [process.state for process in kernel.processes.values()],
        lambda kernel: [block.state for block in kernel.list_processes()],
        lambda kernel: [kernel.get_process(pid).state for pid in list(kernel.processes)],
    ],
)
def test_the_table_shows_them_all(ask: Callable[[Kernel], list[str]]):
    source = IDLE + "fn main() { for i in list::range(0, 5) { spawn fn idle(); } process::sleep(1ms); return look(); }"
    states = Run(source, lambda kernel, _: sorted(ask(kernel))).value
    assert [state for state in states if state == "waiting"] == ["waiting"] * 5


def test_counting_and_cleaning_up_leave_them_light():
    def look(kernel: Kernel, _: Any) -> list[Any]:
        counts = kernel.get_system_status().process_counts
        clean(kernel.worker_api.parts, processes_s=0.0)
        return [
            counts["waiting"],
            counts["terminated"],
            kernel.lookup("p2") is None,
            len(light_processes_of(kernel).light),
        ]

    source = (
        IDLE
        + """
    fn quick() {}
    fn main() { spawn fn quick(); for i in list::range(0, 5) { spawn fn idle(); } process::sleep(1ms); return look(); }
    """
    )
    assert Run(source, look).value == [5, 1, True, 5]


def test_one_that_ended_in_peace_can_still_be_asked_about():
    def look(kernel: Kernel, _: Any) -> list[Any]:
        assert not light_processes_of(kernel).light
        ended = kernel.lookup("p2")
        assert ended is not None
        assert ended.exit is not None
        return [ended.state, ended.exit.reason, ended.exit.result]

    source = "fn quick() { return 7; } fn main() { spawn fn quick(); process::sleep(1ms); return look(); }"
    assert Run(source, look).value == ["terminated", "normal", 7]


def test_a_monitor_says_how_it_ends_whenever_it_was_set():
    source = """
    fn quick() {}
    fn slow() { receive { "end" => {}, "fail" => { throw "no"; } } }
    fn tell() { receive { ["DOWN", p, why] => { print(why); } } }
    fn main() {
        let done = spawn fn quick();
        process::sleep(1ms);
        process::monitor(done);
        tell();
        let first = spawn fn slow();
        process::monitor(first);
        first <- "end";
        tell();
        let second = spawn fn slow();
        second <- "fail";
        process::monitor(second);
        tell();
    }
    """
    ran = Run(source)
    assert ran.lines[:2] == ["normal", "normal"]
    assert "no" in ran.lines[2]
    assert len(ran.warned) == 1
    assert "no" in ran.warned[0]


def test_a_link_ends_a_light_process_and_kill_does():
    source = (
        IDLE
        + """
    fn failing() { receive { x => { throw "broken"; } } }
    fn tied(other) { process::link(other); receive { x => {} } }
    fn main() {
        let a = spawn fn failing();
        let b = spawn fn tied(a);
        let c = spawn fn idle();
        process::sleep(1ms);
        a <- 1;
        look();
        process::sleep(1ms);
        return [process::alive(a), process::alive(b), process::alive(c)];
    }
    """
    )

    def look(kernel: Kernel, _: Any) -> None:
        kernel.kill("p4")

    assert Run(source, look).value == [False, False, False]


def test_what_is_told_to_end_does_nothing_more():
    """Killed while it was in line with a message: it never sees that message."""
    source = """
    fn printing() { while true { receive { x => { print(x); } } } }
    fn main() {
        let p = spawn fn printing();
        p <- "first";
        process::sleep(1ms);
        p <- "second";
        look();
        process::sleep(1ms);
    }
    """

    def look(kernel: Kernel, _: Any) -> None:
        kernel.kill("p2")

    assert Run(source, look).lines == ["first"]


def test_no_more_processes_than_the_kernel_allows():
    source = IDLE + "fn main() { for i in list::range(0, 100) { spawn fn idle(); } }"
    with pytest.raises(VegaError) as raised:
        Run(source, processes_max=20)
    assert raised.value.name == "Overloaded"


def test_who_listens_hears_of_every_process_and_message():
    async def main() -> list[str]:
        heard: list[str] = []
        async with Kernel() as kernel:

            def listen() -> None:
                kernel.on_event(lambda event: heard.append(event.kind))

            source = (
                IDLE
                + """
            fn main() {
                let early = spawn fn idle();
                process::sleep(1ms);
                listen();
                let late = spawn fn idle();
                early <- 1;
                late <- 2;
                process::sleep(1ms);
            }"""
            )
            await vega.run(source, kernel=kernel, host={"listen": listen})
        return heard

    heard = asyncio.run(main())
    assert heard.count("process.created") == 1
    assert heard.count("process.terminated") >= 3
    assert heard.count("message.sent") >= 2


def test_the_end_of_main_ends_them_all():
    ran = Run(IDLE + "fn main() { for i in list::range(0, 50) { spawn fn idle(); } }")
    assert (ran.alive, ran.left) == (0, 0)


def test_one_that_never_waits_leaves_the_others_their_turns():
    source = """
    fn busy() { while true {} }
    fn talks(to) { to <- "here"; }
    fn main() {
        let me = process::self();
        for i in list::range(0, 3) { spawn fn busy(); }
        spawn fn talks(me);
        receive { x => { print(x); } }
        process::sleep(5ms);
        return "over";
    }
    """
    ran = Run(source)
    assert (ran.value, ran.lines) == ("over", ["here"])


def test_a_receive_with_a_time_out_gets_messages_of_light_ones():
    source = """
    fn echo() { while true { receive { p => { p <- "back"; } } } }
    fn main() {
        let other = spawn fn echo();
        let me = process::self();
        let got = 0;
        for i in list::range(0, 20) {
            other <- me;
            receive { x => { got = got + 1; } after 1s => { print("late"); } }
        }
        receive { x => { print("too many"); } after 1ms => { print("none"); } }
        return got;
    }
    """
    ran = Run(source)
    assert (ran.value, ran.lines) == (20, ["none"])


def test_sessions_reach_what_a_process_starts():
    source = """
    fn left(to) { receive { x => { to <- budget::limit(); } } }
    fn main() {
        let me = process::self();
        let outside = spawn fn left(me);
        let inside = null;
        session budget $2.00 { inside = spawn fn left(me); }
        outside <- 1;
        receive { x => { print(x); } }
        inside <- 1;
        receive { x => { print(x); } }
    }
    """
    assert Run(source).lines == ["inf", "2"]


def test_a_full_mailbox_slows_its_sender_down_and_loses_nothing():
    source = """
    fn count(to) {
        let n = 0;
        while n < 200 { receive { x => { n = n + 1; if x != n { print("out of order"); } } } }
        to <- n;
    }
    fn main() {
        let p = spawn fn count(process::self());
        for i in list::range(1, 201) { p <- i; }
        receive { n => { return n; } }
    }
    """
    ran = Run(source, mailbox_messages_max=16)
    assert (ran.value, ran.lines) == (200, [])


@pytest.mark.parametrize("seed", range(12))
def test_order_holds_however_and_whenever_processes_are_looked_at(seed: int):
    """Messages from the program and from outside, in one order, to processes that become the kernel's at any time."""
    rng = random.Random(seed)
    source = """
    fn relay(to, id) { while true { receive { "stop" => { return null; }, x => { to <- [id, x]; } } } }
    fn main() {
        let me = process::self();
        let all = [];
        for i in list::range(0, 5) { all.push(spawn fn relay(me, i)); }
        for step in list::range(0, 300) {
            let id = look("who");
            if id >= 0 { all[id] <- step; }
        }
        let got = [];
        for i in list::range(0, look("sent")) { receive { m => { got.push(m); } } }
        return got;
    }
    """
    sent: list[tuple[int, int]] = []
    step = -1

    def look(kernel: Kernel, what: str) -> int:
        nonlocal step
        if what == "sent":
            return len(sent)
        step += 1
        id_ = rng.randrange(5)
        sent.append((id_, step))
        if rng.random() < 0.02:
            kernel.lookup(f"p{2 + rng.randrange(5)}")
        if rng.random() < 0.1:  # from outside, at the same place of the order
            kernel.send(f"p{2 + id_}", step)
            return -1
        return id_

    got = Run(source, look).value
    assert len(got) == len(sent)
    for id_ in range(5):
        assert [x for of, x in got if of == id_] == [x for of, x in sent if of == id_]


@pytest.mark.parametrize("asks", ["", "process::alive(other);"])
def test_when_all_wait_the_run_says_so(asks: str):
    """Also of one that was light and has been looked up since."""
    source = IDLE + f"fn main() {{ let other = spawn fn idle(); process::sleep(1ms); {asks} receive {{ x => {{}} }} }}"
    with pytest.raises(VegaError) as raised:
        vega.run(source)
    assert raised.value.name == "Deadlock"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_may_be_looked_up_by_what_it_prints(workers: int):
    source = """
    fn talks(to) { for i in list::range(0, 5) { print(i); } to <- "done"; }
    fn main() {
        spawn fn talks(process::self());
        receive { x => { return x; } }
    }
    """
    lines: list[str] = []

    async def main() -> Any:
        async with Kernel() as kernel:

            def write(line: str) -> None:
                lines.append(line)
                assert len(list(kernel.processes.values())) == 2

            return await vega.run(source, kernel=kernel, stdout=write, workers=workers)

    assert asyncio.run(main()) == "done"
    assert lines == ["0", "1", "2", "3", "4"]
