"""Vega programs with damage: sources whose text was changed, and `.vgb` files whose bytes were.

`source(rng)` and `bytecode(rng)` are targets of `fuzz`: each makes one input and hands it to the readers. A source is
put together from pieces that hold every construct, then changed in a few places; it is good, or a SourceError with a
place inside the text. A `.vgb` gets a hash that fits, so that the damage is found only by looking at it; it is refused
with a BytecodeError, or can be listed and runs for a bounded time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Final

from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import SourceError
from lyra.vega import compile as compile_source
from lyra.vega.bytecode import file as files
from lyra.vega.bytecode.file import disassemble
from lyra.vega.format.formatter import format_source
from lyra.vega.machine.fiber import Fiber, OutOfFuel, VmEffect
from lyra.vega.machine.link import link
from lyra.vega.machine.pure.switch import PureTier
from lyra.vega.machine.vm import run

__all__ = ["attempt", "bytecode", "mutated_bytes", "mutated_text", "sealed", "source"]

# Between them every construct of the language; in any order they are a good program.
PARTS: Final = (
    'let n = 1 + 2 * -3 % 4 - 7 / 2;\nlet text = "a ${n} b ${"inner ${n}"} \\u{1F600} \\$5";\n',
    'let xs = [1, "a", null, 2.5, $0.50, 30s, true];\nlet m = {"k": [1, {"deep": xs}], 7: 8};\nm["k"][0] = m.k;\n',
    "fn f(a: int, b = 2, c: list[int] = []) -> int { return a + b; }\nprint(f(1, b: 3));\nf(1);\n",
    "let twice = |g, x| g(g(x));\nprint(twice(|v| v * 2, 5));\nlet none = || { return null; };\n",
    "fn counter() { let n = 0; fn up() { n = n + 1; return n; } return up; }\nprint(counter()());\n",
    "for let i = 0; i < 3; i = i + 1 { if i == 1 { continue; } else if i > 5 { break; } print(i); }\n",
    'for x in [1, 2] { print(x); }\nfor c in "text" { print(c); }\nfor i = 0; i < 2; i = i + 1 { }\n',
    "let w = 3;\nwhile w > 0 && !(w == 7) || false { w = w - 1; }\n{ let w = 9; print(w); }\n",
    'print(match [1, Ok(2)] { [a, Ok(b)] => a + b, Err(e) => e, -1 => "minus", "s" => 1s, _ => { print(0); } });\n',
    'try { throw Broken("x"); } catch Broken(why) { print(why); } catch Error { } finally { print("end"); }\n',
    'fn d() { defer { print("last"); } try { return 1; } finally { print("f"); } }\nprint(d());\n',
    "const LIMIT: int = 0xff;\nprint(LIMIT + 0b11 + 1_000);\n/* a comment */ // another\n",
    ('agent A { model ["sim/echo", "sim/echo"] system "s" temperature 0.5 budget $1.00 memory window(3)\n'
    "  retry { max_attempts 2 backoff exponential(1ms, 2.0, 5ms) on [timeout] } circuit_breaker { threshold 5 }\n"
    "  tool look(p: str) -> str capabilities [fs::read] allowed_paths [\"src/**\"] { return file::read(p); } }\n"
    'fn ask() { let a = spawn A; let r = a <- "x" + 1 timeout 5s budget $0.10; for c in a <~ "y" { print(c); } }\n'),
    ("fn worker(boss, k) { receive { [\"w\", v] => { boss <- v * k; } \"stop\" => { return; } after 1s => { } } }\n"
    "let p = spawn fn worker(process::self(), 2) supervised by { strategy restart max_restarts 1 window 1s };\n"),
    ("fn idle() { receive { _ => null, after 1ms => null } }\n"
    "supervisor S { strategy rest_for_one child a = fn idle() child b = fn idle() }\nspawn S;\n"),
    'parallel { let left = 1; let right = "2"; }\nprint(right + left);\n',
    "session budget $2.50 { print(budget::limit()); }\n",
    'let s = str::join(list::map([3, 1].sort(), |v| str::upper("v${v}")), "-");\nprint(json::stringify({"s": s}));\n',
    'let record: {name: str, age: int} = {"name": "n", "age": 3};\nprint(record.name + record["age"]);\n',
    ("fn half(n, xs) { let out = []; for x in xs { if x > n { continue; } out.push(x / 2 + n); } return out; }\n"
    'fn tree(n) { let m = {"n": n}; while n > 0 && m.len() < 4 { m[n] = "k${n}" + n; n = n - 1; } return [m, n]; }\n'
    "fn twice(n) { for let i = 0; i < 3; i = i + 1 { n = n + half(i, list::range(0, i)).len(); } return -n; }\n"
    "print(half(3, [1, 2, 9]));\nprint(tree(3));\nprint(twice(1) + twice(2.5));\n"),
    'test "t" { assert(1 == 1.0, "equal"); }\nprint("""over\nlines ${1h == 60m}""");\n',
)  # fmt: skip

_WORDS: Final = (
    *("{", "}", "(", ")", "[", "]", ";", ",", "|", "||", "<-", "<~", "=>", "::", "=", "==", ":", ".", "-", '"', '"""'),
    *("${", "\\", "$", "//", "/*", "*/", "\n", "\0", "\u00e9", "\U0001f600", "'", "#", "9" * 25, "1e9", "$0.5", "5s"),
    *("let", "fn", "agent", "match", "receive", "after", "spawn", "fn w(", "if", "else", "for", "in", "catch", "throw"),
    *("timeout", "budget", "supervised by {", "import", "tool", "session budget", "output", "model", "true", "null"),
    *("test", "mock", "Ok(", "0x", "1_"),
)  # fmt: skip
_BODIES: Final = 50  # programs whose files are damaged
_TURNS, _FUEL = 20, 5_000  # how long a damaged program may run: an endless loop takes half a second on a slow machine


# ---------------------------------------------------------------- sources


def mutated_text(text: str, rng: ProcessRandom, others: Sequence[str]) -> str:
    """The text with one to eight small changes."""
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(text) + 1)
        end = min(len(text), place + rng.choice((1, 1, 2, 5, 20, 100)))
        change = rng.randrange(8)
        if change == 0:
            text = text[:place] + text[end:]
        elif change in (1, 2):
            text = text[:place] + rng.choice(_WORDS) + text[place:]
        elif change == 3:
            text = text[:place] + rng.choice(_WORDS) + text[end:]
        elif change == 4:
            text = text[:end] + text[place:]
        elif change == 5:
            text = text[:place] + rng.choice(_WORDS) * rng.choice((2, 10, 300)) + text[place:]
        elif change == 6:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            text = text[:place] + other[start : start + rng.randint(1, 200)] + text[place:]
        else:
            text = text[:place] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x110000)))) + text[end:]
    return text


def program(rng: ProcessRandom) -> str:
    """A good source: some of the parts, each at most once."""
    return "".join(rng.sample(PARTS, rng.randint(1, 6)))


def source(rng: ProcessRandom) -> None:
    """One mutated source through the formatter, the checker and the compiler."""
    text = mutated_text(program(rng), rng, PARTS)
    try:
        once = format_source(text)
        assert format_source(once) == once, "formatting twice is not formatting once"
        compile_source(text)
    except SourceError as error:
        for problem in error.fields.get("problems") or ():
            assert 0 <= problem.at <= len(text), f"{problem} stands outside the text"
            problem.render()
        raise


# ---------------------------------------------------------------- files


def mutated_bytes(body: bytes, rng: ProcessRandom) -> bytes:
    """Some bytes changed, cut, repeated or put in."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 6)):
        offset = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[offset] = rng.randrange(256)
        elif kind == 1:
            data[offset] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[offset : offset + rng.randint(1, 8)]
        elif kind == 3:
            data[offset:offset] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        else:
            piece = data[offset : offset + rng.randint(1, 32)]
            to = rng.randrange(len(data))
            data[to : to + len(piece)] = piece
        if not data:
            data = bytearray(b"\x00")
    return bytes(data)


def sealed(body: bytes) -> bytes:
    """A file with this inside and a hash that fits it."""
    return files.MAGIC + files.VERSION.to_bytes(2, "big") + hashlib.sha256(body).digest() + body


@cache
def _body(number: int) -> bytes:
    return files.dump(compile_source(program(make_random(number))))[files.HEAD :]


def bytecode(rng: ProcessRandom) -> None:
    """One mutated file, loaded, listed and run."""
    attempt(sealed(mutated_bytes(_body(rng.randrange(_BODIES)), rng)))


def attempt(data: bytes) -> None:
    """Load, list and run for a bounded time; BytecodeError if it is refused."""
    loaded = files.load(data)
    disassemble(loaded)
    linked = link(loaded, tier=PureTier)
    if linked.tier is not None:
        linked.tier.is_eager, linked.tier.contended = True, lambda: True  # what runs long is stopped
    fiber = Fiber.start(linked)
    for _ in range(_TURNS):
        result = run(fiber, _FUEL)
        if isinstance(result, OutOfFuel):
            continue
        if not isinstance(result, VmEffect):
            return
        if result.kind == "receive":
            fiber.expire()
        else:
            fiber.resume(None)
