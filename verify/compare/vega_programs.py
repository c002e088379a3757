"""Random Vega programs that ask agents: what the comparison with the line-by-line run is made of.

Sends to agents of every kind (without memory, with it, with tools that read, with one that prints, with limits),
prints, branches, loops with `break` and `continue`, `try`, sessions with budgets, failures, `receive`, streams,
functions that ask, lists that change, lambdas (some that ask), `match`, `defer`, `parallel`, agents that are spawned on
the way and asked at once. Some programs have functions that hand back what they were given, change what others hold,
ask whom they have as a default, call themselves, or compute without end where the line-by-line run never comes; agents
that answer with lists, and agents with a rate. Every program ends.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.core.ids import make_random

__all__ = ["AGENTS", "HELPERS", "program"]

AGENTS = """
agent A { model "sim/script" system "A" max_tokens 40 retry { max_attempts 2 backoff exponential(100ms, 2.0, 1s) } }
agent B { model "sim/script" system "B" max_tokens 40 concurrency 2 timeout 1750ms retry { max_attempts 1 } }
agent T { model "sim/script" system "T" max_tokens 40 retry { max_attempts 1 }
    tool look(x: str) -> str capabilities [fs::read] { return "t" + x + shared; }
}
agent M { model "sim/script" system "M" memory conversation retry { max_attempts 1 } }
agent W { model "sim/script" system "W" retry { max_attempts 1 }
    tool note(x: str) -> str { print("note " + x); return "noted"; }
}
agent S { model "sim/script" system "S" max_tokens 40 retry { max_attempts 1 } }
agent D { model "sim/script" system "D" max_tokens 40 concurrency 2 timeout 1750ms retry { max_attempts 1 } }
agent U { model "sim/script" system "U" max_tokens 40 retry { max_attempts 1 }
    tool look(x: str) -> str capabilities [fs::read] { return "u" + x + shared; }
}
agent V { model "sim/script" system "V ${shared}" max_tokens 40 budget $0.02 retry { max_attempts 1 } }
agent E { model "sim/script" system "E" output list[str] max_tokens 40 retry { max_attempts 1 } }
agent G { model "sim/script" system "G" max_tokens 40 timeout 3s retry { max_attempts 1 }
    rate_limit { requests_per_minute 60 burst 2 strategy queue }
}
agent K { model "sim/script" system "K" max_tokens 40 retry { max_attempts 1 }
    rate_limit { requests_per_minute 60 burst 2 strategy backpressure }
}
agent N { model "sim/script" system "N" max_tokens 40 retry { max_attempts 1 }
    tool look(x: str) -> str capabilities [fs::read] { return "n" + x + log.len(); }
}
let a = spawn A;
let b = spawn B;
let t = spawn T;
let m = spawn M;
let w = spawn W;
let s = spawn S supervised by { strategy stop };
let lists = spawn E;
let slow = spawn G;
let press = spawn K;
let seer = spawn N;
let log = [];
let shared = "s";
fn worker(main) { while true { receive { [from, x] => { main <- [x, "got"]; } } } }
let p = spawn fn worker(process::self());
"""

# Functions that programs with odd ways use.
HELPERS = """
let count = 0;
fn fnoted(x) { log.push(x); return x; }
fn fcounted(x) { count = count + 1; return x + count; }
fn fkept(q) { let r = a <- q; return log; }
fn fwrapped(q, d) { let r = a <- q; return {"r": r, "d": d}; }
fn fall() { return log; }
fn fsized(q) { return a <- q + log.len(); }
fn fwhom(q, who = w) { let r = who <- q + "1"; let u = who <- q + "2"; return r + u; }
fn fheld(q, held = log) { return a <- q + held.len(); }
fn fdown(q, left) { if left == 0 { return ""; } let r = a <- q + left; let u = fdown(q, left - 1); return r + u; }
fn fspin(x) { while x != 1 { x = x + 2; } return x; }
"""

_EARLY = ("a", "a", "a", "b", "b", "t", "s")
_ANY = (*_EARLY, "m", "w")
_SPAWNED = ("D", "D", "U", "V", "V", "M", "D supervised by { strategy stop }")


class Maker:
    def __init__(self, seed: int) -> None:
        self._random = make_random(seed)
        self.scopes: list[list[str]] = [["shared"]]
        self.processes: list[list[str]] = [[]]  # agents that were spawned on the way, beside the scopes
        self.functions: list[tuple[str, int]] = []
        self.loops = 0
        self.depth = 0
        self.number = 0
        self.in_function = False
        self.has_helpers = False

    # ------------------------------------------------------------ chance

    def below(self, count: int) -> int:
        return int(self._random() * count)

    def choice(self, options: tuple[str, ...] | list[str]) -> str:
        return options[self.below(len(options))]

    def often(self, share: float) -> bool:
        return self._random() < share

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def names(self) -> list[str]:
        return [name for scope in self.scopes for name in scope]

    # ------------------------------------------------------------ the whole

    def program(self) -> str:
        parts = [self.held()] if self.often(0.2) else []
        parts += [self.function() for _ in range(self.below(3))]
        for _ in range(1 + self.below(3)):
            name, count = self.fresh("main"), 0
            parts.append(self.named_function(name, count))
            parts.append(f'try {{ print({name}()); }} catch Error(reason) {{ print("caught " + reason); }}')
        parts.append(self.statements(2 + self.below(6)))
        parts.append("print(log);")
        parts.extend(f"print({name});" for name in self.scopes[0])
        parts.append('print(budget::used()); print(s <- "last"); print(m <- "last");')
        helpers = HELPERS if self.has_helpers else ""
        return AGENTS + helpers + "\n".join(parts) + "\n"

    def function(self) -> str:
        name = self.fresh("f")
        return self.named_function(name, 1 + self.below(2), asks_only=self.often(0.7))

    def named_function(self, name: str, count: int, *, asks_only: bool = False) -> str:
        names = [self.fresh("p") for _ in range(count)]
        saved = self.scopes, self.processes, self.loops, self.in_function
        self.scopes, self.processes, self.loops, self.in_function = [["shared"], list(names)], [[]], 0, True
        if asks_only:
            body, result = self.let_ask(), self.ask()
        else:
            body, result = self.statements(2 + self.below(5)), self.text()
        self.scopes, self.processes, self.loops, self.in_function = saved
        if count:
            self.functions.append((name, count))
        return f"fn {name}({', '.join(names)}) {{\n{body}\nreturn {result};\n}}"

    def block(self, count: int | None = None) -> str:
        self.scopes.append([])
        self.processes.append([])
        body = self.statements(1 + self.below(3) if count is None else count)
        self.scopes.pop()
        self.processes.pop()
        return f"{{\n{body}\n}}"

    def statements(self, count: int) -> str:
        self.depth += 1
        lines = [self.statement() for _ in range(count)]
        self.depth -= 1
        return "\n".join(lines)

    def statement(self) -> str:
        simple: list[tuple[int, Callable[[], str]]] = [
            (16, self.let_ask),
            (5, self.set_ask),
            (4, self.let),
            (4, self.assign),
            (3, self.show),
            (2, self.push),
            (2, self.change),
            (3, self.leave),
            (1, self.ordered),
            (1, self.stream),
            (1, self.exchange),
            (2, self.reduce),
            (4, self.spawn_ask),
            (1, self.skip),
            (1, self.mapped),
            (2, self.odd),
        ]
        nested: list[tuple[int, Callable[[], str]]] = [
            (3, self.branch),
            (3, self.loop),
            (4, self.loop_over),
            (2, self.attempt),
            (1, self.session),
            (1, self.deferred),
            (1, self.choose),
            (1, self.together),
        ]
        choices = simple + (nested if self.depth < 4 else [])
        rest = self.below(sum(weight for weight, _ in choices))
        for weight, make in choices:
            rest -= weight
            if rest < 0:
                return make()
        raise AssertionError

    # ------------------------------------------------------------ simple statements

    def ask(self, agents: tuple[str, ...] = _EARLY) -> str:
        spawned = [name for names in self.processes for name in names]
        whom = self.choice(spawned if spawned and self.often(0.4) else agents)
        text = f'({whom} <- "m{self.fresh("")} " + {self.text(1)}'
        if self.often(0.05):
            text += " timeout 950ms"
        if self.often(0.05):
            text += " budget $0.50"
        return text + ")"

    def let_ask(self) -> str:
        value = self.ask(_ANY if self.often(0.25) else _EARLY)
        if self.functions and self.often(0.2):
            value = self.call()
        elif self.often(0.15):
            value = f"{value} + {self.ask()}"
        name = self.fresh("v")
        self.scopes[-1].append(name)
        return f"let {name} = {value};"

    def spawn_ask(self) -> str:
        """An agent of the statement's own, asked at once and perhaps later; its process is never looked at."""
        value, agent = self.fresh("v"), self.choice(_SPAWNED)
        before = f"shared = {self.text(1)}; " if agent == "V" and self.often(0.4) else ""  # which its settings read
        question = f'"m{self.fresh("")} " + {self.text(1)}'
        self.scopes[-1].append(value)
        if self.often(0.2):
            return f"{before}let {value} = (spawn {agent}) <- {question};"
        process = self.fresh("q")
        self.processes[-1].append(process)
        return f"{before}let {process} = spawn {agent}; let {value} = {process} <- {question};"

    def held(self) -> str:
        """A process that is looked at: its name tells what was started before it."""
        return 'try { let h = a <- "h1"; let q = spawn D; let g = q <- "h2"; print(q); } catch Error(r) { print(r); }'

    def call(self) -> str:
        name, count = self.functions[self.below(len(self.functions))]
        return f"{name}({', '.join(self.text(1) for _ in range(count))})"

    def set_ask(self) -> str:
        return f"{self.choice(self.names())} = {self.ask()};"

    def let(self) -> str:
        value = self.text()
        name = self.fresh("v")
        self.scopes[-1].append(name)
        return f"let {name} = {value};"

    def assign(self) -> str:
        return f"{self.choice(self.names())} = {self.text()};"

    def show(self) -> str:
        return f"print({self.ask() if self.often(0.3) else self.text()});"

    def push(self) -> str:
        return f"log.push({self.text()});"

    def change(self) -> str:
        name, alias, first, second = (self.fresh(prefix) for prefix in ("xs", "ys", "u", "v"))
        values = [self.text(1) for _ in range(3)]
        question = self.ask()
        self.scopes[-1].append(second)
        return (
            f"let {name} = [{values[0]}, {values[1]}]; let {alias} = {name}; let {first} = {question};"
            f' {alias}[0] = {values[2]}; let {second} = a <- "m{self.fresh("")} " + {name}[0];'
        )

    def leave(self) -> str:
        kind = self.below(4)
        if kind == 0 and self.loops:
            return f"if {self.condition()} {{ {self.choice(('break', 'continue'))}; }}"
        if kind == 1 and self.in_function:
            return f"if {self.condition()} {{ return {self.text()}; }}"
        if kind == 2:
            return f"if {self.condition()} {{ throw {self.choice(('X', 'Y'))}({self.text(1)}); }}"
        return "log.push(1 / (str::len(shared) - 1));" if self.often(0.3) else self.show()

    def skip(self) -> str:
        """Goes on with the next turn from among calls that overlap."""
        text = self.let_ask()
        if self.loops:
            text += f" {self.let_ask()} if str::len(shared) > {self.below(4)} {{ continue; }}"
        return text

    def ordered(self) -> str:
        name = self.fresh("v")
        value = self.ask(("m", "w"))
        self.scopes[-1].append(name)
        return f"let {name} = {value};"

    def stream(self) -> str:
        return f'for chunk in a <~ "m{self.fresh("")} " + {self.text(1)} {{ print(chunk); }}'

    def exchange(self) -> str:
        name = self.fresh("v")
        text = f'p <- [process::self(), {self.text(1)}]; let {name} = receive {{ [x, _] => x, after 5s => "late" }};'
        self.scopes[-1].append(name)
        return text

    def reduce(self) -> str:
        total, item = self.fresh("v"), self.fresh("x")
        text = f'let {total} = ""; for {item} in {self.items()} {{ {total} = {total} + {self.asked_about(item)}; }}'
        self.scopes[-1].append(total)
        return text

    def mapped(self) -> str:
        value = self.fresh("v")
        body = f"{self.asked_about('q')} + {self.text(2)}" if self.often(0.4) else self.asked_about("q")
        if self.functions and self.often(0.2):
            name, count = self.functions[self.below(len(self.functions))]
            body = f"{name}({', '.join(['q'] + ['shared'] * (count - 1))})"
        items = self.items()
        while self.often(0.25):
            items = f"list::map({items}, |r| {self.asked_about('r')})"
        text = f'let {value} = str::join(list::map({items}, |q| {body}), "+");'
        self.scopes[-1].append(value)
        return text

    def odd(self) -> str:
        """What a careless look ahead gets wrong."""
        self.has_helpers = True
        makers = (
            *(self.given, self.handed, self.wrapped, self.stale, self.stale_tool, self.listed, self.by_default),
            *(self.limited, self.renamed, self.deep, self.spun, self.kept),
        )
        return makers[self.below(len(makers))]()

    def message(self) -> str:
        return f'"m{self.fresh("")} " + {self.text(2)}'

    def answer_name(self) -> str:
        name = self.fresh("v")
        self.scopes[-1].append(name)
        return name

    def given(self) -> str:
        """A library function is given one that leaves something behind."""
        function = self.choice(
            ("fnoted", "fcounted", "|x| fnoted(x)", "|x| fcounted(x)", "|x| { log.push(x); return x; }")
        )
        items = f"[{self.text(2)}, {self.text(2)}]"
        first, question = self.message(), f'"m{self.fresh("")} "'
        first_name, second_name = self.answer_name(), self.answer_name()
        joined = f'str::join(list::map({items}, {function}), ",")'
        return f"let {first_name} = a <- {first}; let {second_name} = a <- {question} + {joined}; log.push(count);"

    def handed(self) -> str:
        first, second = self.fresh("xs"), self.fresh("xs")
        questions = [self.message(), self.message()]
        calls = f"let {first} = fkept({questions[0]}); let {second} = fkept({questions[1]});"
        return f"{calls} {first}.push(1); {second}.push(2);"

    def kept(self) -> str:
        """Maps one in another that keep what they go through, which then changes."""
        whole, all_ = self.fresh("xs"), self.fresh("xs")
        inner = f"list::map({whole}, |x| [x, {self.asked_about('x[0]')}])"
        outer = f"list::map({inner}, |y| [y, {self.asked_about('y[0][0]')}])"
        changed = self.choice((f"{all_}[0][0][0][0]", f"{all_}[1][0][0][0]", f"{all_}[0][0][1]", f"{whole}[0][0]"))
        change = f"{changed} = {self.text(2)};"
        lines = [f"let {whole} = [[{self.text(2)}], [{self.text(2)}]];", f"let {all_} = {outer};", change]
        question = self.asked_about(f"{whole}[0][0] + {all_}[1][0][0][0] + {all_}[0][0][1]")
        beside = self.ask()
        lines.insert(1 + self.below(3), f"let {self.answer_name()} = {beside};")
        lines.append(f"let {self.answer_name()} = {question};")
        return " ".join(lines)

    def wrapped(self) -> str:
        whole, first, second = self.fresh("xs"), self.fresh("xs"), self.fresh("xs")
        questions = [self.message(), self.message()]
        return (
            f"let {whole} = [0]; let {first} = fwrapped({questions[0]}, {whole});"
            f' let {second} = fwrapped({questions[1]}, {whole}); {first}["d"].push(1); log.push({second}["d"].len());'
        )

    def stale(self) -> str:
        """A list that changes under a name that only a function gives it."""
        alias, function = self.fresh("ys"), self.choice(("fsized", "fheld"))
        questions, item = [self.message() for _ in range(3)], self.text(2)
        calls = [f"let {self.answer_name()} = {function}({question});" for question in questions]
        return f"{calls[0]} let {alias} = fall(); {alias}.push({item}); {calls[1]} {calls[2]}"

    def stale_tool(self) -> str:
        alias, questions = self.fresh("ys"), [self.message(), self.message()]
        first, second = self.answer_name(), self.answer_name()
        changes = f"let {alias} = fall(); {alias}.push(3);"
        return f"let {first} = seer <- {questions[0]}; {changes} let {second} = seer <- {questions[1]};"

    def listed(self) -> str:
        """An answer that is a list, under two names."""
        first, alias, questions = self.fresh("xs"), self.fresh("ys"), [self.message() for _ in range(3)]
        second, third = self.answer_name(), self.answer_name()
        return (
            f"let {first} = lists <- {questions[0]}; let {alias} = {first};"
            f" let {second} = a <- {questions[1]} + {first}[0];"
            f' {alias}[0] = "new"; let {third} = a <- {questions[2]} + {first}[0];'
        )

    def by_default(self) -> str:
        whom = self.choice(("", ", a", ", b"))
        question = self.message()
        return f"let {self.answer_name()} = fwhom({question}{whom});"

    def limited(self) -> str:
        item, whom = self.fresh("x"), self.choice(("slow", "press"))
        return f'for {item} in list::range(0, 6) {{ log.push({whom} <- "m{self.fresh("")} " + {item}); }}'

    def renamed(self) -> str:
        """One process under two names."""
        name, questions = self.fresh("q"), [self.message(), self.message()]
        first, second, third, fourth = (self.answer_name() for _ in range(4))
        return (
            f"let {name} = a; let {first} = {name} <- {questions[0]}; let {second} = {name} <- {first};"
            f" let {third} = a <- {questions[1]}; let {fourth} = b <- {second};"
        )

    def deep(self) -> str:
        question, left = self.message(), 2 + self.below(20)
        return f"let {self.answer_name()} = fdown({question}, {left});"

    def spun(self) -> str:
        """Without end, but for an error before it."""
        first, second = self.fresh("v"), self.fresh("v")
        return (
            f"try {{ let {first} = a <- {self.message()}; let z = 1 / (str::len(shared) * 0); let k = fspin(2);"
            f' let {second} = a <- "m{self.fresh("")} " + k; }} catch Error(reason) {{ print("caught " + reason); }}'
        )

    def asked_about(self, item: str) -> str:
        return f'({self.choice(_EARLY)} <- "m{self.fresh("")} " + {item})'

    def items(self) -> str:
        return f"[{', '.join(self.text(2) for _ in range(self.below(5)))}]"

    # ------------------------------------------------------------ nested statements

    def branch(self) -> str:
        text = f"if {self.condition()} {self.block()}"
        return f"{text} else {self.block()}" if self.often(0.5) else text

    def loop(self) -> str:
        name, most = self.fresh("i"), 1 + self.below(4)
        self.loops += 1
        body = self.block()
        self.loops -= 1
        if self.often(0.5):
            return f"for let {name} = 0; {name} < {most}; {name} = {name} + 1 {body}"
        return f"{{ let {name} = 0;\nwhile {name} < {most} {{ {name} = {name} + 1;\n{body} }} }}"

    def loop_over(self) -> str:
        item = self.fresh("x")
        items = self.items()
        self.scopes.append([item])
        self.loops += 1
        if self.often(0.5):
            name = self.fresh("v")
            self.scopes[-1].append(name)
            body = f"let {name} = {self.asked_about(item)};\nlog.push({name}); {self.assign()}"
            if self.often(0.5):
                body += f"\n{self.choice(self.names())} = {self.asked_about(name)};"
            body = f"{{ {body} }}"
        else:
            body = self.block()
        self.loops -= 1
        self.scopes.pop()
        return f"for {item} in {items} {body}"

    def attempt(self) -> str:
        text = f"try {self.block()}"
        errors = [error for error in ("X", "AgentFailed", "BudgetExceeded", "Error") if self.often(0.4)]
        for error in errors:
            text += f' catch {error}(reason) {{ print("caught " + reason);\n{self.block(1)} }}'
        return text if errors and self.often(0.7) else f"{text} finally {self.block(1)}"

    def session(self) -> str:
        amount = self.choice(("0.006", "0.01", "0.02", "0.03", "5.00"))
        inside = self.block(2 + self.below(4))
        caught = 'catch BudgetExceeded(reason) { print("caught " + reason); }'
        return f"try {{ session budget ${amount} {{ {inside} print(budget::used()); }} }} {caught}"

    def deferred(self) -> str:
        if not self.in_function:
            return self.show()
        saved, self.loops, self.in_function = self.loops, 0, False
        body = self.block(1)
        self.loops, self.in_function = saved, True
        return f"defer {body}"

    def choose(self) -> str:
        subject, then, other = self.text(1), self.block(1), self.block(1)
        return f'match {subject} {{ "r1" => {then}, other => {{ log.push(other); {other} }} }}'

    def together(self) -> str:
        first, other = self.fresh("v"), self.fresh("v")
        text = f"parallel {{ let {first} = {self.ask(_ANY)}; let {other} = {self.ask()}; }}"
        self.scopes[-1].extend((first, other))
        return text

    # ------------------------------------------------------------ values

    def text(self, depth: int = 0) -> str:
        kind = self._random()
        names = self.names()
        if kind < 0.2 or depth > 2:
            return f'"t{self.below(5)}"'
        if kind < 0.65:
            return self.choice(names)
        if kind < 0.8:
            return f"{self.choice(names)} + {self.text(depth + 1)}"
        if kind < 0.86:
            return f'"<${{{self.choice(names)}}}>"'
        if kind < 0.9:
            return f"str::upper({self.text(depth + 1)})"
        if kind < 0.94:
            return f'str::join(list::map([{self.text(depth + 1)}], |q| q + shared), "")'
        return f"[{self.text(depth + 1)}, {self.text(depth + 1)}][{self.below(2)}]"

    def condition(self) -> str:
        if self.often(0.5):
            return f"str::len({self.choice(self.names())}) > {self.below(8)}"
        return f'{self.text(2)} {self.choice(("==", "!="))} "t{self.below(5)}"'


def program(seed: int) -> str:
    return Maker(seed).program()
