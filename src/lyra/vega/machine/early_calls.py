"""Calls made ahead of their turn, as the plain data of a fiber.

An EarlyCallGroup belongs to one stretch of a function that the compiler found free of barriers. It holds every call
that was started early: which place in the source makes it (`site`), what was asked, and whether the program has come
to it. The n-th time the program comes to a site it takes the site's n-th call, if that is the very call it makes now;
else it makes it then and there. So an early call can save time and can never change what the program sees. How calls
are made is not known here: the host finds its own part by the group's number and the call's key.

An agent may be asked before the program comes to its `spawn`. Until then a Process with a pid of its own stands
for it (`promised`); the spawn puts the real one in its place.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.vega.values.values import Closure, Fault, Process, equal

OPEN: Final = "open"  # started, and the program has not come to it
REFUSED: Final = "refused"  # the host would not start it: it is made when its turn comes
TAKEN: Final = "taken"  # the program has come to it
IN_TURN: Final = "in turn"  # never made early: the program makes it now
AGAIN: Final = "again"  # the early one was another call than the program makes now


class NotEarly(Fault):
    """No further call is made ahead here; only the code that looks ahead ever sees it."""

    def __init__(self, why: str) -> None:
        super().__init__("NotEarly", why)


class EarlyCall:
    """One call: `arguments` are target, message, time-out and budget of a send; function, arguments and (as a list of
    their slots) the globals that it reads of a call."""

    __slots__ = ("arguments", "in_order", "kind", "number", "site", "state")

    def __init__(self, site: int, kind: str, arguments: list[Any], *, in_order: bool) -> None:
        self.site = site
        self.kind = kind
        self.arguments = arguments
        self.in_order = in_order  # no call that stands before it is still to be made
        self.number = 0  # among the calls of its site
        self.state = OPEN

    @property
    def key(self) -> str:
        """Its name within the group: the place in the source and its number there. It never depends on timing."""
        return f"{self.site}.{self.number}{'.again' if self.state == AGAIN else ''}"

    def is_same(self, arguments: list[Any]) -> bool:
        """Whether this is the call that the program makes now."""
        for mine, now in zip(self.arguments, arguments, strict=True):
            if type(mine) is Closure and type(now) is Closure:
                if mine.function != now.function or mine.captured or now.captured:
                    return False
            elif not equal(mine, now):
                return False
        return True


class EarlyCallGroup:
    """`is_kept`: the run has a journal, so a call has its key even where it is made in its turn; a replay that is
    quicker or slower then finds it all the same."""

    __slots__ = ("calls", "is_kept", "number", "turns")

    def __init__(self, number: int, *, is_kept: bool = False) -> None:
        self.number = number
        self.is_kept = is_kept
        self.calls: dict[int, list[EarlyCall]] = {}  # by site
        self.turns: dict[str, int] = {}  # "pass.site" → how many of the site's calls that pass has come to

    def add(self, call: EarlyCall) -> None:
        calls = self.calls.setdefault(call.site, [])
        call.number = len(calls)
        calls.append(call)

    def next(self, turn: int, site: int) -> EarlyCall | None:
        """The call of a site that a pass (0: the program itself) comes to now."""
        name = f"{turn}.{site}"
        number = self.turns.get(name, 0)
        self.turns[name] = number + 1
        calls = self.calls.get(site, ())
        return calls[number] if number < len(calls) else None

    def promised(self, turn: int, spawn: int) -> Process:
        """The Process that stands for the agent of a spawn to which a pass (0: the program itself) comes now."""
        name = f"{turn}.spawn{spawn}"
        number = self.turns.get(name, 0)
        self.turns[name] = number + 1
        return Process(f"~{self.number}:{spawn}.{number}")

    def keep(self, promised: Process, process: Process) -> None:
        """The program has spawned the promised agent: the early calls to it were calls to this process."""
        for call in (call for calls in self.calls.values() for call in calls):
            if call.kind == "send" and call.arguments[0] == promised:
                call.arguments[0] = process

    def take(self, site: int, kind: str, arguments: list[Any]) -> EarlyCall | None:
        """The call that the program comes to, if the host has to know of it; None: it is simply made."""
        call = self.next(0, site)
        if call is not None and call.state != REFUSED and call.is_same(arguments):
            call.state = TAKEN
            return call
        if kind == "call" and not self.is_kept:
            return None
        now = EarlyCall(site, kind, arguments, in_order=True)
        now.number = self.turns[f"0.{site}"] - 1
        now.state = IN_TURN if call is None or call.state == REFUSED else AGAIN
        return now

    # ------------------------------------------------------------ saving

    def parts(self) -> list[Any]:
        """Everything in it that a snapshot has to reach, in a fixed order."""
        return [call.arguments for calls in self.calls.values() for call in calls]

    def to_data(self) -> list[Any]:
        rows = [
            [call.site, call.kind, call.in_order, call.number, call.state]
            for calls in self.calls.values()
            for call in calls
        ]
        return [self.number, self.is_kept, rows, list(self.turns), list(self.turns.values())]

    @classmethod
    def from_data(cls, data: list[Any]) -> EarlyCallGroup:
        number, is_kept, rows, names, counts = data
        group = cls(int(number), is_kept=bool(is_kept))
        for site, kind, in_order, call_number, state in rows:
            call = EarlyCall(int(site), str(kind), [], in_order=bool(in_order))
            call.number, call.state = int(call_number), str(state)
            group.calls.setdefault(call.site, []).append(call)
        group.turns = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
        return group

    def fill(self, parts: list[Any]) -> None:
        """What `parts` gave, back where it was."""
        for call, arguments in zip([call for calls in self.calls.values() for call in calls], parts, strict=True):
            call.arguments = arguments
