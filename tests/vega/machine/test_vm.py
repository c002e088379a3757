"""The machine as a host sees it: effects, answers, errors with their places."""

from __future__ import annotations

from typing import Any

import pytest

import lyra.vega
from lyra.core.budgets.money import Money
from lyra.core.limits import VEGA_DEPTH_MAX
from lyra.errors import BytecodeError, CheckError
from lyra.vega.bytecode.file import disassemble, verify
from lyra.vega.bytecode.program import Program
from lyra.vega.compiler.compiler import compile_module
from lyra.vega.machine.fiber import Done, Fiber, VmEffect
from lyra.vega.machine.link import link
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.machine.vm import run
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import BULK, Closure, Duration, Process, Stream, copy_value
from tests.vega.local_host import LocalHost


def compiled(text: str) -> Program:
    """Without the checker: some of these programs are wrong on purpose."""
    return compile_module(parse(text, "t.vega"), Source("t.vega", text))


def started(text: str) -> Fiber:
    return Fiber.start(link(compiled(text)))


def effect(fiber: Fiber) -> VmEffect:
    result = run(fiber)
    assert isinstance(result, VmEffect), result
    return result


def outcome(text: str) -> tuple[list[str], str | None]:
    lines: list[str] = []
    end = LocalHost(compiled(text), lines.append).run()
    return lines, None if end.error is None else str(end.error)


# ---------------------------------------------------------------- effects


def test_effects_are_handed_out_in_order_and_answered():
    fiber = started('let x = file::read("a"); print(x + "!"); print(env::get("HOME", 1));')
    first = effect(fiber)
    assert (first.kind, first.arguments) == ("file::read", ("a",))
    fiber.resume("text")
    second = effect(fiber)
    assert (second.kind, second.arguments) == ("print", ("text!",))
    fiber.resume()
    third = effect(fiber)
    assert (third.kind, third.arguments) == ("env::get", ("HOME", 1))
    fiber.throw("CapabilityDenied", "no environment here")
    done = run(fiber)
    assert isinstance(done, Done)
    assert str(done.error) == "error[CapabilityDenied]: no environment here"
    assert (done.error.file, done.error.line, done.error.column) == ("t.vega", 1, 48)


def test_an_error_of_the_host_can_be_caught():
    fiber = started('try { http::get("u"); } catch Denied(r) { print(r); }')
    assert effect(fiber).kind == "http::get"
    fiber.throw("CapabilityDenied", "not allowed")
    assert effect(fiber).arguments == ("not allowed",)


def test_a_send_carries_a_copy_and_its_settings():
    fiber = started("let p = process::self(); let xs = [1]; p <- xs timeout 5s budget $1.00; p <- xs; print(xs);")
    assert effect(fiber).kind == "process::self"
    fiber.resume(Process("p1"))
    sent = effect(fiber)
    target, message, timeout, budget = sent.arguments
    assert (sent.kind, target, message) == ("send", Process("p1"), [1])
    assert (timeout, budget) == (Duration.parse("5", "s"), Money(1_000_000))
    message.append("changed by the host")
    fiber.resume()
    assert effect(fiber).arguments == (Process("p1"), [1], None, None)
    fiber.resume()
    assert effect(fiber).arguments == ("[1]",)


def test_spawns_say_what_and_how():
    fiber = started(
        """
        const RULES = "be brief";
        agent A { model "m" system RULES retry { max_attempts 3 on [timeout] backoff exponential(1s, 2.0, 5s) } }
        fn work(x, y = 2) { }
        let a = spawn A supervised by { strategy restart max_restarts 3 window 60s };
        let b = spawn async A;
        spawn fn work(1);
        """
    )
    kind, name, settings, arguments, supervision, is_async = effect(fiber).arguments
    assert (kind, name, arguments, is_async) == ("agent", "A", None, False)
    assert settings["system"] == "be brief"
    assert settings["retry"]["on"] == ["timeout"]
    assert settings["retry"]["backoff"] == ["exponential", Duration.parse("1", "s"), 2.0, Duration.parse("5", "s")]
    assert supervision == {"strategy": "restart", "max_restarts": 3, "window": Duration.parse("60", "s")}
    fiber.resume(Process("a"))
    assert effect(fiber).arguments[5] is True
    fiber.resume(None)
    kind, name, function, arguments, supervision, _ = effect(fiber).arguments
    assert (kind, name, supervision) == ("function", "work", None)
    assert isinstance(function, Closure)
    assert arguments[0] == 1


def test_tools_and_agents_are_listed_for_the_host():
    program = compiled(
        """
        agent A {
            model "m"
            tools [shared]
            tool own(path: str, n: int = 3) -> str capabilities [fs::read] { return path; }
        }
        tool shared(x: int) -> int { return x * 2; }
        test "adds" { print(1 + 1); }
        """
    )
    (own,) = program.agents["A"].tools
    assert [(p.name, p.type, p.has_default) for p in own.parameters] == [("path", "str", False), ("n", "int", True)]
    assert own.result == "str"
    assert program.tools["shared"].parameters[0].type == "int"
    assert [test.name for test in program.tests] == ["adds"]
    fiber = Fiber.call(link(program), program.tools["shared"].function, [21], [])
    assert run(fiber).value == 42
    settings = run(Fiber.call(link(program), program.agents["A"].configuration, [], [])).value
    assert settings["tool_settings"] == {"own": {"capabilities": ["fs::read"]}}
    assert isinstance(settings["tools"][0], Closure)


def test_streams_are_asked_for_chunks_and_closed():
    fiber = started('let s = process::self() <~ "go"; for c in s { print(c); if c == "2" { break; } }')
    effect(fiber)
    fiber.resume(Process("p"))
    assert effect(fiber).kind == "send_stream"
    fiber.resume(Stream("s1"))
    for chunk in ("1", "2"):
        asked = effect(fiber)
        assert (asked.kind, asked.arguments) == ("stream_next", (Stream("s1"),))
        fiber.resume([chunk])
        assert effect(fiber).arguments == (chunk,)
        fiber.resume()
    assert effect(fiber).kind == "stream_close"
    fiber.resume()
    assert isinstance(run(fiber), Done)


def test_a_stream_loop_left_by_an_error_is_closed():
    fiber = started('for c in process::self() <~ "go" { throw "x"; }')
    effect(fiber)
    fiber.resume(Process("p"))
    effect(fiber)
    fiber.resume(Stream("s1"))
    effect(fiber)
    fiber.resume(["1"])
    assert effect(fiber).kind == "stream_close"
    fiber.resume()
    assert run(fiber).error.text == "x"


def test_budget_scopes_are_closed_on_every_way_out():
    fiber = started('fn f() { session budget $2.00 { return 1; } } f(); session budget $1.00 { throw "x"; }')
    kinds = []
    while isinstance(result := run(fiber), VmEffect):
        kinds.append(result.kind)
        fiber.resume()
    assert kinds == ["budget_enter", "budget_exit"] * 2
    assert fiber.budgets == 0


def test_host_functions_and_arguments():
    text = (
        'fn main(args) { print(add(1, 2)); print(args); try { add("x", 1); } catch TypeError(r) { print("caught"); } }'
    )
    program = lyra.vega.compile(text, "t.vega", host_names={"add"})
    lines: list[str] = []

    def add(left: int, right: int) -> int:
        return left + right

    assert LocalHost(program, lines.append, functions={"add": add}, arguments=["a", "b"]).run().error is None
    assert lines == ["3", "[a, b]", "caught"]


# ---------------------------------------------------------------- errors


def test_an_uncaught_error_knows_its_place_and_who_called():
    end = LocalHost(compiled("fn inner(x) {\n    return 1 / x;\n}\nfn outer() { return inner(0); }\nouter();\n")).run()
    assert (end.error.name, end.error.line, end.error.column) == ("ZeroDivision", 2, 12)
    assert end.error.trace == ["inner (t.vega:2:12)", "outer (t.vega:4:21)", "main (t.vega:5:1)"]


def spent(text: str, answer: Any) -> int:
    """The fuel of a program from its first effect, which is answered so, to its second."""
    fiber = started(text)
    fiber.linked.post = lambda _, message: copy_value(message) is not None
    effect(fiber)
    ticks = fiber.ticks
    fiber.resume(answer)
    effect(fiber)
    return ticks - fiber.ticks


def test_a_loop_over_a_map_costs_fuel_for_the_copy_of_its_keys():
    """Once for each loop; a list is not copied."""
    text = 'let xs = file::read("a"); for x in xs { break; } for x in xs { break; } print("end");'
    keys = list(range(1600))
    assert spent(text, dict.fromkeys(keys)) - spent(text, keys) == 2 * (len(keys) >> BULK)


def test_a_message_costs_fuel_for_its_copy():
    """Also where the host delivers it without an effect."""
    text = 'let x = file::read("a"); let p = x[0]; p <- x[1]; print("end");'
    assert spent(text, [Process("p1"), [0] * 400]) - spent(text, [Process("p1"), []]) == 100


def test_depth_is_bounded_and_the_same_however_it_is_stepped():
    """The error comes at the same depth, with small turns or large ones."""
    text = "let n = 0; fn deep() { n = n + 1; deep(); } try { deep(); } catch StackOverflow { print(n); }"
    depths = set()
    for fuel in (1, 1000, 1 << 40):
        fiber = started(text)
        while not isinstance(result := run(fiber, fuel), VmEffect):
            assert not isinstance(result, Done)
        depths.add(result.arguments[0])
    assert len(depths) == 1
    assert VEGA_DEPTH_MAX < int(depths.pop()) < VEGA_DEPTH_MAX + 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print(unknwn);", "unknown name"),
        ("str::lenn(1);", "unknown name"),
        ("strr::len(1);", "unknown module"),
        ("fn f(a) { } f();", "needs `a`"),
        ("fn f(a) { } f(1, 2);", "takes 1"),
        ("fn f(a) { } f(b: 1);", "no parameter `b`"),
        ("fn f(a) { } f(1, a: 1);", "given twice"),
        ('str::split("a");', "needs `sep`"),
        ("spawn Absent;", "no agent `Absent`"),
        ("const X = 1; X = 2;", "const"),
        ("fn f() { } f = 1;", "cannot be assigned"),
        ('import "./nowhere.vega" as n;', "cannot find"),
    ],
)
def test_mistakes_that_the_compiler_sees_itself(text: str, message: str):
    """A tree that was not checked does not become wrong code."""
    with pytest.raises(CheckError, match=message):
        compiled(text)


# ---------------------------------------------------------------- code


def test_a_program_can_be_read_by_people():
    text = disassemble(compiled("fn fib(n) { if n < 2 { return n; } return fib(n - 1); }\nprint(fib(5));"))
    assert "UNLESS_LT" in text
    assert "#2 fib" in text
    assert "1:16" in text


def test_a_long_text_is_shown_by_its_beginning():
    """Of one with 41 characters the last two are left out; one with 40 is whole."""
    for text, shown in (("x" * 40, repr("x" * 40)), ("x" * 41, repr("x" * 39 + "…"))):
        assert shown in disassemble(compiled(f'print("{text}");'))


def test_what_is_no_function_is_called_with_names_in_vain():
    source = "let f: any = 5; try { f(a: 1); } catch TypeError(why) { print(why); }"
    lines: list[str] = []
    lyra.vega.run(source, stdout=lines.append)
    assert lines == ["int is not a function and cannot be called"]


def test_the_verifier_looks_at_imports():
    """Each is a kind, a target and a name; of a node more is known."""
    program = compiled("print(1);")
    for imports, fits in (
        ([["mcp", "files", "f"]], True),
        ([["node", "n", "n", "a", "b"]], True),
        ([["mcp", "files"]], False),
        ([["mcp", "files", "f", "a", "b"]], False),
        ([["node", "n", "n", "a"]], False),
    ):
        program.imports = [list(row) for row in imports]
        if fits:
            verify(program)
        else:
            with pytest.raises(BytecodeError, match="an import is not"):
                verify(program)


def test_the_verifier_names_what_is_wrong():
    for change, message in (
        (lambda program: program.functions[1].code.append((0xFE, 0, 0, 0)), "no instruction"),
        (lambda program: program.functions[1].code.insert(0, (0x01, 9999, 0, 0)), "no such to"),
        (lambda program: program.functions[1].code.insert(0, (0x30, 0, 0, 0)), "goes back"),
        (lambda program: program.functions[1].code.pop(), "does not leave"),
        (lambda program: setattr(program, "entry", 99), "entry has no function"),
        (lambda program: setattr(program.functions[1], "registers", 1 << 30), "too many registers"),
    ):
        program = compiled("let x = 1; print(x);")
        change(program)
        function = program.functions[1]
        function.places = [0] * len(function.code)
        with pytest.raises(BytecodeError, match=message):
            verify(program)


@pytest.mark.parametrize("call", [["no::such", 2], ["str::split", 9], ["str::split", -1], ["str::split"], "str::split"])
def test_the_verifier_knows_the_library(call):
    """Its functions, and how many arguments each takes."""
    program = compiled('print(str::split("abc", "b"));')
    constants = next(f.constants for f in program.functions if ["str::split", 2] in f.constants)
    constants[constants.index(["str::split", 2])] = call
    with pytest.raises(BytecodeError, match=r"LIBRARY needs a name and a count|the library has no"):
        verify(program)


def test_library_lambdas_can_be_interrupted():
    """`list::map` is Vega: its lambda may stop for an effect in the middle."""
    fiber = started('let ys = list::map(["a", "b"], |p| file::read(p)); print(ys);')
    for answer in ("1", "2"):
        assert effect(fiber).kind == "file::read"
        fiber = from_data(fiber.linked, to_data(fiber))
        fiber.resume(answer)
    assert effect(fiber).arguments == ("[1, 2]",)


def test_strings_grow_in_place():
    """`s = s + x` in a loop does not copy the whole string each time."""
    assert outcome(
        'let s = ""; let i = 0; while i < 200000 { s = s + "xxxxxxxx"; i = i + 1; } print(str::len(s));'
    ) == (
        ["1600000"],
        None,
    )
