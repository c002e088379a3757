"""A function's statements in stretches: runs of agent calls and computing with nothing else in between.

Within a stretch a call may start as soon as what it needs is there; its answer is still taken at its own place. What is
neither (a print, a call of an unknown function, `with`, `try`, a loop that cannot be looked ahead in) ends a stretch.
A `for` over something that is known at its begin is a stretch of all its turns, when no call needs what an earlier turn
has bound.
"""

from __future__ import annotations

import ast
from typing import Final

from lyra.agents.overlap.forms import CallForm, Names, names_bound, names_read, unfit

__all__ = ["Called", "Loop", "Other", "Part", "Piece", "Stretch", "stretches"]


class Called:
    """One agent call: who is asked and where, and in a stretch which computing and which earlier answers it needs."""

    __slots__ = ("after", "node", "number", "pieces", "place", "target", "why")

    def __init__(self, node: ast.expr, target: ast.expr, place: ast.expr | None) -> None:
        self.node = node
        self.target = target
        self.place = place
        self.number = -1
        self.pieces: list[Piece] = []  # what has to be computed for it, in order
        self.after: list[Called] = []  # whose answers it needs
        self.why = ""  # it is not made early

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def outer(self) -> Names:
        """The names it needs as they were before the stretch."""
        read, bound = frozenset[str](), frozenset[str]()
        for piece in self.pieces:
            read |= piece.read - bound
            bound |= piece.bound
        return read | (names_read(self.node) - bound)


class Piece:
    """One statement of a stretch. `is_noted` is `xs.append(…)`: done in its place, needed by no call."""

    __slots__ = ("bound", "calls", "is_noted", "node", "read")

    def __init__(self, node: ast.stmt, calls: list[Called], *, is_noted: bool = False) -> None:
        self.node = node
        self.calls = calls
        self.is_noted = is_noted
        self.bound = names_bound(node)
        inside = [call.node for call in calls]
        self.read = _read_outside(node, inside)


class Stretch:
    """`carried` are names that a turn of the loop around it leaves for the next."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        for number, call in enumerate(self.calls):
            call.number = number
        for at, piece in enumerate(pieces):
            for call in piece.calls:
                _find_needs(call, pieces[:at], piece)

    @property
    def calls(self) -> list[Called]:
        return [call for piece in self.pieces for call in piece.calls]


class Loop:
    """A `for` whose turns overlap."""

    __slots__ = ("node", "stretch")

    def __init__(self, node: ast.For, stretch: Stretch) -> None:
        self.node = node
        self.stretch = stretch


class Other:
    """A statement that is left as it is, but for the blocks in it. `why` tells what is in the way, if anything is."""

    __slots__ = ("calls", "node", "why")

    def __init__(self, node: ast.stmt, why: str, calls: list[Called]) -> None:
        self.node = node
        self.why = why
        self.calls = calls


Part = Stretch | Loop | Other

_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def stretches(form: CallForm, statements: list[ast.stmt], fresh: Names) -> list[Part]:
    """The parts of a statement list. `fresh` are the function's own lists, which nobody else holds."""
    parts: list[Part] = []
    pieces: list[Piece] = []

    def finish() -> None:
        if pieces:
            parts.append(Stretch(pieces.copy()))
            pieces.clear()

    for node in statements:
        piece, why = _piece(form, node, fresh)
        if piece is None or any(call for call in piece.calls if _is_late(call, pieces)):
            finish()
        if piece is not None:
            pieces.append(piece)
            if isinstance(node, ast.Return):
                finish()
            continue
        loop = _loop(form, node, fresh) if isinstance(node, ast.For) else None
        parts.append(loop if loop is not None else Other(node, why, _calls_of(form, node)))
    finish()
    return parts


def _is_late(call: Called, pieces: list[Piece]) -> bool:
    """Whether a call needs a list that the stretch has added to, or lives where the stretch has decided: then it has to
    wait for that."""
    changed = frozenset(_noted(piece) for piece in pieces if piece.is_noted) & names_read(call.node)
    if call.place is not None:
        changed |= names_read(call.place) & frozenset().union(*(piece.bound for piece in pieces))
    return bool(changed)


def _noted(piece: Piece) -> str:
    value = piece.node.value  # type: ignore[attr-defined]  # an expression statement
    return str(value.func.value.id)


def _piece(form: CallForm, node: ast.stmt, fresh: Names) -> tuple[Piece | None, str]:
    value: ast.expr | None = getattr(node, "value", None)
    if isinstance(node, ast.Assign):
        fits = all(_is_plain_target(target) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        fits = isinstance(node.target, ast.Name) and node.value is not None and form.unfit(node.annotation) is None
    else:
        fits = isinstance(node, (ast.Expr, ast.Return)) and value is not None
    if not fits or value is None:
        return None, "" if isinstance(node, _BLOCKS) else f"`{_short(node)}` is made in its turn"
    if isinstance(node, ast.Expr) and _is_noting(form, value, fresh):
        return Piece(node, [], is_noted=True), ""
    why = unfit(form, value) or next((why for call in form.calls(value) if (why := form.in_turn(call))), None)
    if why is not None:
        return None, why
    calls = [Called(call, form.target(call), form.place(call)) for call in form.calls(value)]  # type: ignore[arg-type]
    if isinstance(node, ast.Return) and not calls:
        return None, ""
    return Piece(node, calls), ""


def _is_plain_target(node: ast.expr) -> bool:
    if isinstance(node, (ast.Tuple, ast.List)):
        return all(isinstance(item, ast.Name) for item in node.elts)
    return isinstance(node, ast.Name)


def _is_noting(form: CallForm, node: ast.expr, fresh: Names) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in fresh
        and len(node.args) == 1
        and not node.keywords
        and form.unfit(node.args[0]) is None
        and not list(form.calls(node.args[0]))
    )


def _loop(form: CallForm, node: ast.For, fresh: Names) -> Loop | None:
    if (
        node.orelse
        or not _is_plain_target(node.target)
        or form.unfit(node.iter) is not None
        or any(True for _ in form.calls(node.iter))
    ):
        return None
    parts = stretches(form, node.body, fresh)
    if len(parts) != 1 or not isinstance(parts[0], Stretch) or isinstance(node.body[-1], ast.Return):
        return None
    stretch = parts[0]
    items = names_bound(node.target)
    changed = frozenset().union(*(piece.bound for piece in stretch.pieces))
    changed |= frozenset(_noted(piece) for piece in stretch.pieces if piece.is_noted)
    needed = frozenset().union(*(call.outer for call in stretch.calls)) if stretch.calls else frozenset()
    if not stretch.calls or changed & (needed | names_read(node.iter) | items):
        return None
    return Loop(node, stretch)


def _find_needs(call: Called, before: list[Piece], own: Piece) -> None:
    """Backwards from the call: the pieces that bind what it reads, and what those read."""
    wanted = names_read(call.node)
    for piece in reversed(before):
        if piece.bound & wanted:
            call.pieces.insert(0, piece)
            wanted = (wanted - piece.bound) | piece.read
            call.after = [*piece.calls, *call.after]
    inner = [other for other in own.calls if other is not call and _is_inside(other.node, call.node)]
    call.after += inner


def _is_inside(part: ast.AST, whole: ast.AST) -> bool:
    return any(node is part for node in ast.walk(whole))


def _read_outside(node: ast.stmt, inside: list[ast.expr]) -> Names:
    """The names a statement reads besides those of its agent calls."""
    hidden = {id(part) for call in inside for part in ast.walk(call)}
    return frozenset(
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and id(part) not in hidden
    )


def _calls_of(form: CallForm, node: ast.stmt) -> list[Called]:
    """The agent calls in a statement itself, not in the blocks of it."""
    found: list[Called] = []
    for part in ast.iter_child_nodes(node):
        if not isinstance(part, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            found += [Called(call, form.target(call), None) for call in form.calls(part)]  # type: ignore[arg-type]
    return found


def _short(node: ast.stmt) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 40 else text[:37] + "…"
