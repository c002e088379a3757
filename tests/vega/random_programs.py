"""Random Vega programs: nested control flow, closures, errors, `finally` and `defer`; every one ends."""

from __future__ import annotations

import random

__all__ = ["random_program"]


class Maker:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scopes: list[list[str]] = [[]]  # names of int variables that may be read and assigned
        self.functions: list[tuple[str, int]] = []
        self.lambdas: list[list[str]] = [[]]  # names of variables that hold a lambda of one parameter
        self.loops = 0
        self.in_function = False
        self.number = 0
        self.depth = 0

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def names(self) -> list[str]:
        return [name for scope in self.scopes for name in scope]

    def program(self) -> str:
        parts = [self.function() for _ in range(self.chance.randint(0, 3))]
        # Most random programs soon throw something; so most of it stands in functions whose errors are caught.
        for _ in range(3):
            parts.append(self.function(parameters=0))
            parts.append(f"try {{ print({self.functions[-1][0]}()); }} catch Error(reason) {{ print(reason); }}")
        parts.append(self.statements(self.chance.randint(3, 8)))
        parts.extend(f"print({name});" for name in self.scopes[0])
        return "\n".join(parts) + "\n"

    def function(self, parameters: int | None = None) -> str:
        name = self.fresh("f")
        count = self.chance.randint(0, 3) if parameters is None else parameters
        names = [self.fresh("p") for _ in range(count)]
        saved = self.scopes, self.lambdas, self.loops, self.in_function
        self.scopes, self.lambdas, self.loops, self.in_function = [list(names)], [[]], 0, True
        body = self.statements(self.chance.randint(1, 5))
        result = self.expression()
        self.scopes, self.lambdas, self.loops, self.in_function = saved
        self.functions.append((name, count))
        return f"fn {name}({', '.join(names)}) {{\n{body}\nreturn {result};\n}}"

    def block(self, count: int | None = None) -> str:
        self.scopes.append([])
        self.lambdas.append([])
        body = self.statements(self.chance.randint(1, 3) if count is None else count)
        self.scopes.pop()
        self.lambdas.pop()
        return f"{{\n{body}\n}}"

    def statements(self, count: int) -> str:
        self.depth += 1
        lines = [self.statement() for _ in range(count)]
        self.depth -= 1
        return "\n".join(lines)

    def statement(self) -> str:
        simple = [self.let, self.let, self.assign, self.assign, self.show, self.let_lambda, self.leave]
        nested = [self.branch, self.loop, self.loop_over, self.attempt, self.attempt, self.deferred, self.choose]
        choices = simple + (nested if self.depth < 4 else [])
        return self.chance.choice(choices)()

    def let(self) -> str:
        value = self.expression()
        name = self.fresh("v")
        self.scopes[-1].append(name)
        return f"let {name} = {value};"

    def let_lambda(self) -> str:
        parameter = self.fresh("p")
        saved, loops = self.scopes, self.loops
        self.scopes, self.loops = [*self.scopes, [parameter]], 0
        if self.chance.random() < 0.5 or not self.names():
            text = f"|{parameter}| {self.expression()}"
        else:
            outer = self.chance.choice(self.names())
            text = f"|{parameter}| {{ {outer} = {outer} + {parameter}; return {self.expression()}; }}"
        self.scopes, self.loops = saved, loops
        name = self.fresh("g")
        self.lambdas[-1].append(name)
        return f"let {name} = {text};"

    def assign(self) -> str:
        names = self.names()
        if not names:
            return self.let()
        return f"{self.chance.choice(names)} = {self.expression()};"

    def show(self) -> str:
        return f"print({self.expression()});"

    def leave(self) -> str:
        kind = self.chance.random()
        if kind < 0.3 and self.loops:
            return f"if {self.condition()} {{ {self.chance.choice(['break', 'continue'])}; }}"
        if kind < 0.6 and self.in_function:
            return f"if {self.condition()} {{ return {self.expression()}; }}"
        if kind < 0.8:
            return (
                f'if {self.condition()} {{ throw {self.chance.choice(["A", "B", "C"])}("t${{{self.expression()}}}"); }}'
            )
        return self.show()

    def branch(self) -> str:
        text = f"if {self.condition()} {self.block()}"
        if self.chance.random() < 0.5:
            text += f" else {self.block()}"
        return text

    def loop(self) -> str:
        name = self.fresh("i")
        limit = self.chance.randint(1, 4)
        self.loops += 1
        if self.chance.random() < 0.5:
            body = self.block()
            self.loops -= 1
            return f"for let {name} = 0; {name} < {limit}; {name} = {name} + 1 {body}"
        body = self.block()
        self.loops -= 1
        return f"{{ let {name} = 0;\nwhile {name} < {limit} {{ {name} = {name} + 1;\n{body} }} }}"

    def loop_over(self) -> str:
        items = ", ".join(self.expression(1) for _ in range(self.chance.randint(0, 3)))
        name = self.fresh("x")
        self.scopes.append([name])
        self.lambdas.append([])
        self.loops += 1
        body = self.block()
        self.loops -= 1
        self.scopes.pop()
        self.lambdas.pop()
        return f"for {name} in [{items}] {body}"

    def attempt(self) -> str:
        text = f"try {self.block()}"
        names = self.chance.sample(["A", "B", "Error", "ZeroDivision"], self.chance.randint(0, 2))
        for error in names:
            text += f" catch {error}(reason) {{ print(reason);\n{self.block(1)} }}"
        if not names or self.chance.random() < 0.5:
            text += f" finally {self.block()}"
        return text

    def deferred(self) -> str:
        if not self.in_function:
            return self.show()
        saved, self.loops, self.in_function = self.loops, 0, False
        body = self.block()
        self.loops, self.in_function = saved, True
        return f"defer {body}"

    def choose(self) -> str:
        arms = [f"{self.chance.randint(0, 3)} => {self.block(1)}"]
        name = self.fresh("m")
        self.scopes.append([name])
        self.lambdas.append([])
        arms.append(f"[{name}, _] => {self.block(1)}")
        self.scopes.pop()
        self.lambdas.pop()
        arms.append(f"_ => print({self.expression(1)})")
        subject = self.expression(1) if self.chance.random() < 0.6 else f"[{self.expression(1)}, 0]"
        return f"match {subject} {{ {', '.join(arms)} }}"

    # ------------------------------------------------------------ expressions

    def expression(self, depth: int = 0) -> str:
        names = self.names()
        kind = self.chance.random()
        if depth > 2 or kind < 0.25:
            return str(self.chance.randint(0, 9))
        if kind < 0.5 and names:
            return self.chance.choice(names)
        if kind < 0.75:
            operator = self.chance.choice(["+", "-", "*", "+", "-", "%", "/"])
            return f"({self.expression(depth + 1)} {operator} {self.expression(depth + 1)})"
        lambdas = [name for scope in self.lambdas for name in scope]
        if kind < 0.83 and lambdas:
            return f"{self.chance.choice(lambdas)}({self.expression(depth + 1)})"
        if kind < 0.92 and self.functions:
            name, count = self.chance.choice(self.functions)
            return f"{name}({', '.join(self.expression(depth + 1) for _ in range(count))})"
        if kind < 0.96:
            inner = self.expression(depth + 1)
            other = self.expression(depth + 1)
            return f"match {inner} {{ 0 => {other}, n{self.number} => n{self.number} + 1 }}"
        return f"[{self.expression(depth + 1)}, {self.expression(depth + 1)}][{self.chance.randint(0, 1)}]"

    def condition(self, depth: int = 0) -> str:
        kind = self.chance.random()
        if kind < 0.6 or depth > 2:
            operator = self.chance.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"{self.expression(2)} {operator} {self.expression(2)}"
        if kind < 0.75:
            return f"({self.condition(depth + 1)}) && ({self.condition(depth + 1)})"
        if kind < 0.9:
            return f"({self.condition(depth + 1)}) || ({self.condition(depth + 1)})"
        return f"!({self.condition(depth + 1)})"


def random_program(seed: int) -> str:
    return Maker(seed).program()
