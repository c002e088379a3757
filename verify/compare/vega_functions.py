"""Random pure functions in Vega: what the two ways of running them are compared on.

A program is a few functions that call each other and themselves, with every statement and operator that a pure
function may have; most expressions have the kinds they should, some do not. Numbers are small or at the edges of 64
bits, texts have characters of several bytes, lists are aliased, nested, changed and handed on. Loops mostly end; the
comparison gives each run a bounded time all the same.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.ids import ProcessRandom

__all__ = ["Made", "arguments", "functions"]

INTS: Final = (
    *(0, 1, 2, 3, 5, 7, 10, -1, -2, -7, 100),
    *(0x3FFFFFFE, 0x3FFFFFFF, 0x40000000, -0x3FFFFFFF, -0x40000000, 1 << 31, 1 << 32, 3_037_000_500),
    *((1 << 62), (1 << 63) - 1, (1 << 63) - 2, -(1 << 63) + 1, -(1 << 62), -(1 << 63)),
)
FLOATS: Final = (0.0, 1.0, -1.0, 0.5, 2.5, -3.25, 1e308, -1e308, 1e-300, 9007199254740993.0, 0.1)
TEXTS: Final = ("", "a", "ab", "héllo", "😀", "a😀b", "x,y,z", "12", "\u00e9\u0301")
KINDS: Final = ("int", "int", "int", "int", "float", "str", "bool", "ints", "ints", "texts", "lists", "map", "any")
NUMBERS: Final = ("int", "int", "int", "float", "bool")
_FIRST_MAX: Final = 2  # how deep expressions are nested

Made = tuple[str, list[list[str]], bool]  # the source, the kinds of each function's parameters, are they all numbers


def literal(value: Any) -> str:
    """A value as a program writes it."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return "(-9223372036854775807 - 1)" if value == -(1 << 63) else f"({value})" if value < 0 else str(value)
    if type(value) is float:
        text = format(value, ".17g")
        text = text if "." in text or "e" in text else text + ".0"
        return f"({text})" if value < 0 else text
    return '"' + str(value) + '"'


def arguments(rng: ProcessRandom, kinds: list[str]) -> list[Any]:
    """Values for parameters of these kinds; now and then one of another."""
    return [argument(rng, kind if rng.random() < 0.95 else rng.choice(KINDS)) for kind in kinds]


def argument(rng: ProcessRandom, kind: str) -> Any:
    if kind == "any":
        kind = rng.choice(KINDS[:-1])
    if kind == "int":
        return rng.choice(INTS) if rng.random() < 0.3 else rng.randint(-3, 9)
    if kind == "float":
        return rng.choice((*FLOATS, float("inf"), float("nan"), -0.0))
    if kind == "str":
        return rng.choice(TEXTS)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "map":
        return {rng.choice(("a", "b", "c", 1, 2)): rng.randint(-2, 9) for _ in range(rng.randint(0, 3))}
    inner = {"ints": "int", "texts": "str", "lists": "ints"}[kind]
    items = [argument(rng, inner) for _ in range(rng.randint(0, 4))]
    if items and rng.random() < 0.1:
        items.append(items[0] if rng.random() < 0.5 else None)
    return items


def functions(rng: ProcessRandom) -> Made:
    """A program whose function `go0`, `go1`, … each call one pure function. Every third is about numbers alone."""
    maker = _Maker(rng, NUMBERS if rng.random() < 0.33 else KINDS)
    texts = [maker.function() for _ in range(rng.randint(1, 4))]
    for number, (name, kinds, _) in enumerate(maker.known):
        names = ", ".join(f"a{position}" for position in range(len(kinds)))
        texts.append(f"fn go{number}({names}) {{ return {name}({names}); }}")
    return "\n".join(texts) + "\n", [kinds for _, kinds, _ in maker.known], maker.is_numeric


class _Maker:
    def __init__(self, rng: ProcessRandom, kinds: tuple[str, ...]) -> None:
        self.rng = rng
        self.kinds = kinds
        self.is_numeric = kinds is NUMBERS
        self.known: list[tuple[str, list[str], str]] = []  # name, kinds of parameters, kind of result
        self.scopes: list[dict[str, str]] = []
        self.kept: set[str] = set()  # names that are not assigned: parameters mostly, and counters
        self.own: set[str] = set()  # names of what the function made itself
        self.numbers = 0
        self.loops: list[str] = []  # what has to stand before a `continue`
        self.result = "any"
        self.itself: tuple[str, list[str]] | None = None
        self.depth = 0

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def fresh(self, prefix: str = "v") -> str:
        self.numbers += 1
        return f"{prefix}{self.numbers}"

    def names(self, *kinds: str) -> list[str]:
        return [name for scope in self.scopes for name, kind in scope.items() if not kinds or kind in kinds]

    # ------------------------------------------------------------ functions

    def function(self) -> str:
        rng = self.rng
        name = f"f{len(self.known)}"
        kinds = [rng.choice(self.kinds) for _ in range(rng.randint(0, 3))]
        is_recursive = self.chance(0.35)
        if is_recursive:
            kinds.insert(0, "int")
        self.result = rng.choice(self.kinds)
        parameters = [f"p{position}" for position in range(len(kinds))]
        self.scopes = [dict(zip(parameters, kinds, strict=True))]
        self.kept = {name for name in parameters if self.chance(0.7)}
        self.own = set(parameters) if self.chance(0.1) else set()  # changes what its caller sees
        self.loops = []
        lines = []
        if is_recursive:
            operator, bound = rng.choice(("<", "<=", "<")), rng.choice((0, 1, 2, 2, -5))
            lines.append(f"if p0 {operator} {literal(bound)} {{ return {self.value(self.result)}; }}")
            if self.chance(0.8):
                lines.append(f"if p0 > 12 {{ return {self.value(self.result)}; }}")
            self.itself = (name, kinds)
        else:
            self.itself = None
        lines.append(self.block(rng.randint(2, 6)))
        lines.append(f"return {self.value(self.result)};" if self.chance(0.95) else "")
        self.known.append((name, kinds, self.result))
        body = "\n".join(lines)
        return f"fn {name}({', '.join(parameters)}) {{\n{body}\n}}"

    def block(self, count: int) -> str:
        return "\n".join(self.statement() for _ in range(count))

    def braced(self) -> str:
        self.scopes.append({})
        self.depth += 1
        body = self.block(self.rng.randint(1, 3))
        self.depth -= 1
        self.scopes.pop()
        return f"{{\n{body}\n}}"

    def statement(self) -> str:
        simple = (self.let, self.let, self.let, self.assign, self.assign, self.change, self.change, self.leave)
        nested = (self.branch, self.branch, self.while_, self.for_, self.while_ if self.is_numeric else self.for_in)
        return self.rng.choice(simple + (nested if self.depth < 3 else ()))()

    def let(self) -> str:
        kind = self.rng.choice(self.kinds)
        value = self.value(kind)
        name = self.fresh()
        self.scopes[-1][name] = kind
        if not value.startswith(("p", "v", "f", "x", "i")):
            self.own.add(name)
        elif value in self.own:
            self.own.add(name)  # another name for it
        return f"let {name} = {value};"

    def assign(self) -> str:
        names = [name for name in self.names() if name not in self.kept or self.chance(0.02)]
        if not names:
            return self.let()
        name = self.rng.choice(names)
        kind = next(scope[name] for scope in self.scopes if name in scope)
        value = self.value(kind if self.chance(0.93) else self.rng.choice(self.kinds))
        if self.chance(0.3) and kind in ("int", "str", "float"):
            value = f"{name} + {self.value(kind, 1)}"
        if value.startswith(("p", "v", "f", "x", "i")) and value not in self.own:
            self.own.discard(name)
        return f"{name} = {value};"

    def change(self) -> str:
        """Something pushed, stored, inserted or taken out."""
        lists = [name for name in self.names("ints", "texts", "lists", "any") if name in self.own]
        maps = [name for name in self.names("map", "any") if name in self.own]
        rng = self.rng
        if maps and (not lists or self.chance(0.3)):
            name = rng.choice(maps)
            key = literal(rng.choice(("a", "b", "new", 1, 2)))
            return rng.choice(
                (
                    lambda: f"{name}[{key}] = {self.value('int', 1)};",
                    lambda: f"map::set({name}, {key}, {self.value('any', 1)});",
                    lambda: f"map::remove({name}, {key});",
                    lambda: f"{name}[{self.value('str', 1)}] = {self.value('int', 1)};",
                    lambda: f"{name}[{self.value(rng.choice(('int', 'str')), 1)}] = {self.look(1)};",
                )
            )()
        if not lists:
            return self.let()
        name = rng.choice(lists)
        kind = next(scope[name] for scope in self.scopes if name in scope)
        item = self.value(_INNER.get(kind, "any") if self.chance(0.95) else "any", 1)
        index = self.value("int", 1) if self.chance(0.5) else str(rng.randint(0, 2))
        return rng.choice(
            (
                lambda: f"{name}.push({item});",
                lambda: f"{name}.push({item});",
                lambda: f"list::push({name}, {item});",
                lambda: f"{name}[{index}] = {item};",
                lambda: f"{name}[{name}.len() - 1] = {item};",
                lambda: f"{name}[{name}.len() - 1] = {name}.push({item}).len();",
                lambda: f"{name}[{name}.len() / 2] = {name}.push({item}).len();",
                lambda: f"{name}[{name}.len() % 2] = {name}.push({item}).len();",
                lambda: f"{name}[{self.taken()}] = {self.look(1)};",
                lambda: f"{name}[{name}.push({item}).len() / 2] = {name}.len();",
                lambda: f"list::insert({name}, {rng.randint(0, 1)}, {item});",
                lambda: f"list::pop({name});",
                lambda: f"list::remove({name}, 0);",
                lambda: f"if {name}.len() < 9 {{ {name}.push({item}); }}",
                lambda: f"if {name}.len() > {rng.randint(0, 3)} {{ {name}[{rng.randint(0, 2)}] = {item}; }}",
            )
        )()

    def taken(self) -> str:
        """An int whose computing changes a list of the function's own, where it has one."""
        lists = [name for name in self.names("ints", "lists", "texts") if name in self.own]
        if not lists:
            return str(self.rng.randint(0, 2))
        name = self.rng.choice(lists)
        return self.rng.choice(
            (
                f"{name}.push({self.rng.randint(0, 2)}).len()",
                f"list::pop({name})",
                f"list::remove({name}, 0)",
                f"list::insert({name}, 0, {self.rng.randint(0, 2)}).len()",
            )
        )

    def look(self, depth: int) -> str:
        """An int that tells how a list of the function's own looks now."""
        lists = [name for name in self.names("ints", "lists", "texts") if name in self.own]
        return f"{self.rng.choice(lists)}.len()" if lists and self.chance(0.7) else self.value("int", depth)

    def leave(self) -> str:
        chosen, condition = self.rng.random(), self.value("bool", 2)
        if self.loops and chosen < 0.35:
            return f"if {condition} {{ break; }}"
        if self.loops and chosen < 0.7:
            return f"if {condition} {{ {self.loops[-1]} continue; }}"
        if chosen < 0.8:
            return f"if {condition} {{ return {self.value(self.result)}; }}"
        if chosen < 0.83:
            return f'if {condition} {{ throw Broken("no ${{{self.value("any", 1)}}}"); }}'
        if chosen < 0.87:
            return f"return {self.value(self.result)};"
        return f"({self.value('any', 2)});"

    def branch(self) -> str:
        text = f"if {self.value('bool')} {self.braced()}"
        if self.chance(0.3):
            text += f" else if {self.value('bool', 2)} {self.braced()}"
        return text + (f" else {self.braced()}" if self.chance(0.4) else "")

    def counter(self) -> tuple[str, str]:
        name = self.fresh("i")
        limit = str(self.rng.randint(1, 6)) if self.chance(0.85) else self.value("int", 1)
        start = self.rng.choice(("0", "0", "0", "1", "-2", "9223372036854775800"))
        if start[0] == "9":
            limit = "9223372036854775807"
        return name, f"{start} {limit}"

    def while_(self) -> str:
        name, ends = self.counter()
        start, limit = ends.split(" ", 1)
        operator = self.rng.choice(("<", "<", "<", "<="))
        step = f"{name} = {name} + {self.rng.choice(('1', '1', '1', '2'))};"
        self.scopes.append({name: "int"})
        if self.chance(0.85):
            self.kept.add(name)
        is_first = self.chance(0.3)
        self.loops.append("" if is_first else step)
        body = self.braced()
        self.loops.pop()
        self.scopes.pop()
        inside = f"{step}\n{body}" if is_first else f"{body}\n{step}"
        return f"{{ let {name} = {start};\nwhile {name} {operator} {limit} {{ {inside} }} }}"

    def for_(self) -> str:
        name, ends = self.counter()
        start, limit = ends.split(" ", 1)
        self.scopes.append({name: "int"})
        if self.chance(0.85):
            self.kept.add(name)
        self.loops.append("")
        body = self.braced()
        self.loops.pop()
        self.scopes.pop()
        step = self.rng.choice((f"{name} = {name} + 1", f"{name} = {name} + 1", f"{name} = {name} + 3"))
        return f"for let {name} = {start}; {name} < {limit}; {step} {body}"

    def for_in(self) -> str:
        kind = self.rng.choice(("ints", "ints", "texts", "lists", "str", "map", "any"))
        source = self.value(kind, 2)
        name = self.fresh("x")
        self.scopes.append({name: _INNER.get(kind, "any")})
        self.loops.append("")
        body = self.braced()
        self.loops.pop()
        self.scopes.pop()
        return f"for {name} in {source} {body}"

    # ------------------------------------------------------------ values

    def value(self, kind: str, depth: int = _FIRST_MAX) -> str:
        if self.chance(0.015):
            kind = self.rng.choice(self.kinds)
        if kind == "any":
            kind = self.rng.choice(self.kinds[:-1])
        names = self.names(kind, "any") if self.chance(0.1) else self.names(kind)
        if names and self.chance(0.35 if depth > 0 else 0.75):
            return self.rng.choice(names)
        if depth > 0 and self.chance(0.12):
            call = self.call(kind, depth)
            if call:
                return call
        text: str = getattr(self, f"_{kind}")(depth)
        return text

    def call(self, kind: str, depth: int) -> str:
        if self.itself is not None and self.result == kind and self.chance(0.6):
            name, kinds = self.itself
            rest = [self.value(wanted, depth - 1) for wanted in kinds[1:]]
            return f"{name}({', '.join([f'p0 - {self.rng.randint(1, 3)}', *rest])})"
        fitting = [(name, kinds) for name, kinds, result in self.known if result == kind]
        if not fitting:
            return ""
        name, kinds = self.rng.choice(fitting)
        return f"{name}({', '.join(self.value(wanted, depth - 1) for wanted in kinds)})"

    def _int(self, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or self.chance(0.2):
            return literal(rng.choice(INTS)) if self.chance(0.12) else str(rng.randint(0, 9))
        chosen = 0.59 if self.is_numeric else rng.random()
        if self.is_numeric and self.chance(0.08):
            return f"-({self.value('int', depth - 1)})"
        if chosen < 0.6:
            operator = rng.choice(("+", "+", "-", "-", "*", "/", "%"))
            right = self.value("int", depth - 1)
            if operator in "/%" and self.chance(0.7):
                right = str(rng.randint(1, 9))
            return f"({self.value('int', depth - 1)} {operator} {right})"
        inner = depth - 1
        if self.chance(0.08):
            return self.taken()
        if chosen < 0.75:
            items = self.value("ints", 0)
            if self.chance(0.5):
                items = f"({items} + [4, 5, 6])"
            return f"{items}[{self._index(inner)}]"
        if chosen < 0.85:
            return f"{self.value(rng.choice(('ints', 'str', 'texts', 'map')), inner)}.len()"
        if chosen < 0.9:
            return f"-({self.value('int', inner)})"
        return rng.choice(
            (
                lambda: f"str::index_of({self.value('str', inner)}, {self.value('str', 0)})",
                lambda: f"math::abs({self.value('int', inner)})",
                lambda: f"list::sum({self.value('ints', inner)})",
                lambda: f"math::floor({self.value('float', inner)})",
                lambda: f"map::get({self.value('map', inner)}, {literal(rng.choice(('a', 'b', 1)))}, 4)",
            )
        )()

    def _index(self, depth: int) -> str:
        return self.value("int", depth) if self.chance(0.3) else str(self.rng.randint(0, 2))

    def _float(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.25):
            return literal(self.rng.choice(FLOATS))
        left = self.value(self.rng.choice(("float", "float", "int")), depth - 1)
        operator = self.rng.choice(("+", "-", "*", "*", "/", "/" if self.is_numeric else "%"))
        if self.chance(0.1):
            return self.rng.choice((f"-({left})", f"-({left})" if self.is_numeric else f"math::float({left})"))
        return f"({left} {operator} {self.value('float', depth - 1)})"

    def _str(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.25):
            return literal(self.rng.choice(TEXTS))
        inner = depth - 1
        return self.rng.choice(
            (
                lambda: f"({self.value('str', inner)} + {self.value('str', inner)})",
                lambda: f"({self.value('str', inner)} + {self.value('any', inner)})",
                lambda: f"({self.value('any', inner)} + {self.value('str', inner)})",
                lambda: f'"<${{{self.value("any", 0)}}} ${{{self.value("int", 0)}}}>"',
                lambda: f"{self.value('str', 0)}[{self._index(inner)}]",
                lambda: f"{self.value('texts', 0)}[{self._index(inner)}]",
                lambda: f"str::upper({self.value('str', inner)})",
                lambda: f"str::slice({self.value('str', inner)}, {self.rng.randint(0, 2)})",
                lambda: f"str::join({self.value('ints', inner)}, {self.value('str', 0)})",
                lambda: f"type({self.value('any', inner)})",
            )
        )()

    def _bool(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.1):
            return self.rng.choice(("true", "false"))
        inner, operator = depth - 1, self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        kind = self.rng.choice(("int", "int", "int", "float", "str"))
        if self.is_numeric:
            kind = self.rng.choice(("int", "int", "float"))
        other = self.rng.choice(("int", "float")) if kind != "str" else "str"
        if self.is_numeric and self.chance(0.9):
            return self.rng.choice(
                (
                    lambda: f"({self.value(kind, inner)} {operator} {self.value(kind, inner)})",
                    lambda: f"({self.value('float', inner)} {operator} {self.rng.randint(-3, 9)})",
                    lambda: (
                        f"({self.value('bool', inner)} {self.rng.choice(('&&', '||'))} {self.value('bool', inner)})"
                    ),
                    lambda: f"({self.value('bool', inner)} == {self.value('bool', inner)})",
                    lambda: f"!({self.value('bool', inner)})",
                )
            )()
        return self.rng.choice(
            (
                lambda: f"({self.value(kind, inner)} {operator} {self.value(kind, inner)})",
                lambda: f"({self.value(kind, inner)} {operator} {self.value(other, inner)})",
                lambda: f"({self.value('bool', inner)} {self.rng.choice(('&&', '||'))} {self.value('bool', inner)})",
                lambda: f"!({self.value('bool', inner)})",
                lambda: f"({self.value('any', inner)} {self.rng.choice(('==', '!='))} {self.value('any', inner)})",
                lambda: f"list::contains({self.value('ints', 0)}, {self.value('int', inner)})",
                lambda: f"list::contains([1, {self.value('float', 0)}], {self.value('float', inner)})",
                lambda: f"(list::unique([{self.value('float', 0)}, {self.value('float', inner)}]).len() == 1)",
                lambda: f"(Ok({self.value('any', inner)}) == Err({self.value('int', 0)}))",
            )
        )()

    def _listed(self, inner: str, depth: int) -> str:
        return "[" + ", ".join(self.value(inner, depth - 1) for _ in range(self.rng.randint(0, 3))) + "]"

    def _ints(self, depth: int) -> str:
        chosen = self.rng.random()
        if depth > 0 and chosen < 0.15:
            return f"({self.value('ints', depth - 1)} + {self.value('ints', depth - 1)})"
        if depth > 0 and chosen < 0.25:
            return f"list::range(0, {self.rng.randint(0, 5)})"
        if depth > 0 and chosen < 0.35:
            return f"list::reverse({self.value('ints', depth - 1)})"
        if depth > 0 and chosen < 0.42:
            return f"{self.value('lists', 0)}[{self._index(0)}]"
        owned = [name for name in self.names("ints") if name in self.own]
        if owned and chosen < 0.5:
            return f"{self.rng.choice(owned)}.push({self.value('int', 0)})"
        return self._listed("int", depth)

    def _texts(self, depth: int) -> str:
        if depth > 0 and self.chance(0.25):
            return f"str::split({self.value('str', depth - 1)}, {literal(self.rng.choice(('', ',')))})"
        return self._listed("str", depth)

    def _lists(self, depth: int) -> str:
        return self._listed("ints", depth)

    def _map(self, depth: int) -> str:
        if depth > 0 and self.chance(0.2):
            return f"map::merge({self.value('map', depth - 1)}, {self.value('map', depth - 1)})"
        keys = [literal(self.rng.choice(("a", "b", "c", 1, 2))) for _ in range(self.rng.randint(0, 3))]
        return "({" + ", ".join(f"{key}: {self.value('int', depth - 1)}" for key in keys) + "})"


_INNER: Final = {"ints": "int", "texts": "str", "lists": "ints", "str": "str"}
