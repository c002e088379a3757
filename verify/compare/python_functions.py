"""Random Python functions for `@lyra.parallel`: agents are asked, with computing, prints, loops, branches and catches.

Among the computing is all that a look ahead could get wrong: nested calls, comparisons that stop early, lists that grow
or have two names, iterators that are used up, objects whose methods and properties count how often they are asked,
variables without a value, comprehensions, strings over several lines in an indented function.

`source_of(seed)` asks agents' processes and agents, with a kernel of their own; `program_of(seed)` is the program of a
process that asks agents as its children.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from lyra.core.ids import make_random

__all__ = ["PROCESSES", "luck_of", "program_of", "source_of"]

PROCESSES: Final = 3


def luck_of(text: str) -> Any:
    return make_random(int.from_bytes(blake2b(text.encode(), digest_size=8).digest()))


def source_of(seed: int) -> str:
    parameters = [f"p{index}" for index in range(PROCESSES)] + [f"a{index}" for index in range(PROCESSES)]
    return _written(seed, [*parameters, "spent", "team", "todo"], in_program=False)


def program_of(seed: int) -> str:
    return _written(seed, ["ctx"], in_program=True)


def _written(seed: int, parameters: list[str], *, in_program: bool) -> str:
    luck = luck_of(f"function {seed}")
    writer = _Writer(luck, in_program=in_program)
    head = ["if True:"] * writer.deeper
    head.append("    " * writer.deeper + f"async def work({', '.join(parameters)}):")
    writer.line(1, 'v0 = "start"')
    writer.line(1, "xs = []")
    writer.block(1, luck.randint(3, 8))
    writer.line(1, f"return [{', '.join(sorted(writer.names))}]")
    return "\n".join([*head, *writer.lines]) + "\n"


class _Writer:
    def __init__(self, luck: Any, *, in_program: bool) -> None:
        self.luck = luck
        self.in_program = in_program
        self.lines: list[str] = []
        self.deeper = int(luck.random() < 0.2)  # it stands in a block
        self.names = {"v0", "xs"}
        self.depth = 0

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * (level + self.deeper) + text)

    def block(self, level: int, count: int) -> None:
        for _ in range(count):
            self.statement(level)

    def statement(self, level: int) -> None:
        kinds = ["call"] * 12 + ["compute"] * 3 + ["say", "note", "mixed", "fail", "chain"]
        kinds += ["nested", "decided", "displayed", "joined", "alias", "used_up", "counted", "more", "unset", "each"]
        if not self.in_program:
            kinds += ["look"] * 2 + ["channel", "asked_by_place", "noted"]
        if self.depth < 2:
            kinds += ["if", "for", "for", "try", "while", "together"]
            if not self.in_program:
                kinds += ["team", "todo"]
        getattr(self, f"_{self.luck.choice(kinds)}")(level)

    def _name(self) -> str:
        return f"v{self.luck.randrange(5)}"

    def _text(self) -> str:
        known = sorted(self.names - {"xs"})
        return str(
            self.luck.choice(
                [
                    f'"{self.luck.randrange(99)}"',
                    self.luck.choice(known),
                    f'f"{{{self.luck.choice(known)}}}!"',
                    "str(len(xs))",
                    f'"""{self.luck.randrange(9)}\n      two\nthree"""',
                ]
            )
        )

    def _asked(self) -> str:
        number = self._whom()
        if not self.in_program and self.luck.random() < 0.6:
            return f"await p{number}.send({self._text()})"
        return self._run(number, self._text())

    def _whom(self) -> int:
        return int(self.luck.choice([0, 0, 0, 1, 1, 1, PROCESSES - 1]))

    def _run(self, number: int, text: str) -> str:
        limit = ', budget={"llm_calls": 3, "output_tokens": 60}' if self.luck.random() < 0.1 else ""
        return f"await lyra.run(a{number}, {text}, {'on=ctx' if self.in_program else 'clock=p0._kernel.clock'}{limit})"

    def _bind(self, level: int, value: str) -> None:
        name = self._name()
        if self.depth:
            name = self.luck.choice(sorted(self.names - {"xs"}))  # what a branch binds has to be there without it
        self.line(level, f"{name} = {value}")
        self.names.add(name)

    def _call(self, level: int) -> None:
        if self.luck.random() < 0.2:
            self.line(level, self._asked())
        else:
            self._bind(level, self._asked())

    def _mixed(self, level: int) -> None:
        self._bind(level, f'({self._asked()}) + "/" + ({self._asked()})')

    def _nested(self, level: int) -> None:
        number = self._whom()
        inner = f'"{self.luck.randrange(9)}" + ({self._asked()})'
        self._bind(level, self._run(number, inner) if self.in_program else f"await p{number}.send({inner})")

    def _decided(self, level: int) -> None:
        first, other = self._asked(), self._asked()
        self._bind(
            level,
            self.luck.choice(
                [
                    f'str(({first}) == "no" == ({other}))',
                    f"str(({first}) < {self._text()} < ({other}))",
                    f"(({first}) if len({self._text()}) % 2 else ({other}))",
                    f"({self._text()}[:1] and ({first})) or ({other})",
                ]
            ),
        )

    def _displayed(self, level: int) -> None:
        parts = [self._asked() for _ in range(3)]
        self._bind(
            level,
            self.luck.choice(
                [
                    f"str({{({parts[0]}): ({parts[1]}), 'k': ({parts[2]})}})",
                    f"str([({parts[0]}), ({parts[1]})])",
                    f'"{{:>9}} {{!r}} {{}}".format(({parts[0]}), {self._text_name()}, ({parts[1]}))',
                    f'"%s %r" % (({parts[0]}), ({parts[1]}))',
                ]
            ),
        )

    def _text_name(self) -> str:
        return str(self.luck.choice(sorted(self.names - {"xs"})))

    def _joined(self, level: int) -> None:
        """A list that has grown, read through a variable."""
        self.line(level, f"xs.append({self._text()})")
        self._bind(level, self.luck.choice(['"|".join(xs)', '"|".join(x for x in xs)', "str(xs[-1:])", "xs[-1]"]))
        self._bind(level, self._asked())

    def _alias(self, level: int) -> None:
        self.line(level, self.luck.choice(["ys = xs", 'ys = [xs, "k"]', "ys = (xs,)"]))
        self._bind(level, self._asked())
        self.line(level, f"xs.append({self._text()})")
        self._bind(level, "str(ys)")

    def _used_up(self, level: int) -> None:
        self.line(level, 'words = iter(("a", "b", "c"))')
        self._bind(level, self._asked())
        self._bind(level, self.luck.choice(['",".join(words)', "str([*words])", "next(words)"]))
        self._bind(level, self._asked())
        self._bind(level, '"".join(words) + "."')

    def _counted(self, level: int) -> None:
        self._bind(level, self.luck.choice(['box.find("x")', "box.turn", "str(box)", "box.said + str(box.count())"]))

    def _more(self, level: int) -> None:
        name = self._text_name()
        self.line(level, f"{name} += {self.luck.choice([self._text(), '(' + self._asked() + ')'])}")

    def _unset(self, level: int) -> None:
        """A variable that may have no value."""
        self.line(level, f"if len({self._text()}) % 2:")
        self.line(level + 1, 'unset = "u"')
        self._bind(level, self._asked())
        if self.luck.random() < 0.3:
            self._bind(level, f"unset + {self._text()}")
        elif self.luck.random() < 0.3:
            self.line(level, "del unset")

    def _each(self, level: int) -> None:
        items = self.luck.choice(['("a", "b", "c")', "range(3)", '"xyz"', "list(xs)", "xs[:2]"])
        self._bind(level, f'"+".join([{self._run(self._whom(), "str(x)")} for x in {items}])')

    def _together(self, level: int) -> None:
        head = self.luck.choice(
            [
                'for i, x in enumerate(("a", "b", "c")):',
                'for i, x in enumerate(["a", "b"], 1):',
                'for i, x in zip(range(3), "abc"):',
                "for i, x in enumerate(xs):",
                'for i, x in {"a": "1", "b": "2"}.items():',
            ]
        )
        self.line(level, head)
        self.depth += 1
        self._bind(level + 1, self._run(self._whom(), 'f"{i}{x}"'))
        if self.luck.random() < 0.5:
            self.statement(level + 1)
        self.depth -= 1

    def _channel(self, level: int) -> None:
        self._bind(level, f"await box.send({self._text()})")

    def _asked_by_place(self, level: int) -> None:
        self._bind(level, f"await team[{self.luck.randrange(PROCESSES + 1)}].send({self._text()})")

    def _noted(self, level: int) -> None:
        self._bind(level, self.luck.choice(["str(len(todo))", "todo[0]", '",".join(todo)']))

    def _team(self, level: int) -> None:
        self.line(level, "for one in team:")
        self._bind(level + 1, f"await one.send({self._text()})")

    def _todo(self, level: int) -> None:
        """A loop over a list that the last agent's tool may have changed."""
        self.line(level, "for task in todo:")
        self.depth += 1
        self._bind(level + 1, self.luck.choice(["await p2.send(task)", self._run(0, "task"), self._asked()]))
        if self.luck.random() < 0.3:
            self.line(level + 1, "if len(todo) < 5:")
            self.line(level + 2, 'todo.append("more")')
        self.depth -= 1

    def _chain(self, level: int) -> None:
        """One that needs the answer of one that needs nothing, behind one that may take more than one question."""
        self._bind(level, self._run(1, f'"{self.luck.randrange(99)}"'))
        name = self.luck.choice(sorted(self.names - {"xs"}))
        self.line(level, f"{name} = {self._run(0, self._text())}")
        self._bind(level, self._run(0, name))

    def _compute(self, level: int) -> None:
        self._bind(level, f'{self._text()} + "{self.luck.randrange(9)}"')

    def _fail(self, level: int) -> None:
        self._bind(level, f"str(1 // (len({self._text()}) % {self.luck.randint(2, 5)}))")

    def _look(self, level: int) -> None:
        self._bind(
            level, self.luck.choice([f"str(len(p{self.luck.randrange(PROCESSES)}.messages))", "str(spent.used)"])
        )

    def _say(self, level: int) -> None:
        seen = self._text()
        if not self.in_program and self.luck.random() < 0.6:
            seen = f"len(p{self.luck.randrange(PROCESSES)}.messages)"
        self.line(level, f"say({seen})")

    def _note(self, level: int) -> None:
        self.line(level, f"xs.append({self._text()})")

    def _inside(self, level: int, head: str) -> None:
        self.line(level, head)
        self.depth += 1
        self.block(level + 1, self.luck.randint(1, 3))
        self.depth -= 1

    def _if(self, level: int) -> None:
        self._inside(level, f"if len({self._text()}) % 2:")
        if self.luck.random() < 0.5:
            self._inside(level, "else:")

    def _for(self, level: int) -> None:
        name = f"i{self.depth}"
        self.line(level, f"for {name} in range({self.luck.randint(1, 4)}):")
        self.depth += 1
        if self.luck.random() < 0.6:
            number = self._whom()
            self._bind(level + 1, self._run(number, f'f"turn {{{name}}}"'))
            self.line(level + 1, f"xs.append({self._text()})")
        else:
            self.block(level + 1, self.luck.randint(1, 3))
        self.depth -= 1

    def _while(self, level: int) -> None:
        self.line(level, f"for _ in range({self.luck.randint(1, 3)}):")
        self.depth += 1
        self.block(level + 1, self.luck.randint(1, 2))
        self.line(level + 1, f"if len({self._text()}) % 3 == 0:")
        self.line(level + 2, self.luck.choice(["break", "continue"]))
        self.depth -= 1

    def _try(self, level: int) -> None:
        self._inside(level, "try:")
        self.line(level, "except Exception as error:")
        self.line(level + 1, 'v0 = "caught " + type(error).__name__')
