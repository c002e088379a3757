"""The guards that keep the generated code of pure Vega functions exact, and a bug for each."""

from __future__ import annotations

from typing import Final

from verify.planted.apply import Change

__all__ = ["BUGS", "GUARDS"]

GUARDS: Final[dict[str, str]] = {
    "overflow": "a result that leaves 64 bits gives up",
    "truncate": "division and remainder are Python's only where nothing is negative",
    "index": "an index below zero is none, though Python takes it",
    "sign": "what is never negative is known, not supposed",
    "order": "an index is computed before the value that is stored there, where it makes a difference",
    "bound": "only a counter that its loop bounds is stepped without a look at 64 bits",
    "mutation": "only what the function made itself is changed in it",
    "poll": "a call that runs long gives way to processes that wait for their turn",
}

_EXPRESSIONS: Final = "lyra.vega.machine.pure.generate"
_GENERATE: Final = "lyra.vega.machine.pure.generate"
_TREES: Final = "lyra.vega.compiler.pure_trees"

BUGS: Final[dict[str, tuple[Change, ...]]] = {
    "overflow": (Change(_EXPRESSIONS, "Values._is_safe", "_, operator, left, right = node", "return True"),),
    "truncate": (Change(_EXPRESSIONS, "Values._ints", "divisor_fits and self._is_positive(left)", "True"),),
    "index": (Change(_EXPRESSIONS, "Values._index", "self._is_positive(index)", "True"),),
    "sign": (Change(_EXPRESSIONS, "Values._is_positive", "is_positive(node, self.facts.positive)", "True"),),
    "order": (Change(_GENERATE, "_GeneratedFunction._store_statement", "_changes(index) or _changes(value)", "False"),),
    "bound": (Change(_EXPRESSIONS, "Values._is_safe", "slot in self.bounded", "True"),),
    "mutation": (Change(_TREES, "_Tree.function", "changes_only_its_own(len(node.parameters), body)", "True"),),
    "poll": (
        Change(_GENERATE, "_GeneratedFunction._poll", "ast.If(load_name('STOP'), [give_up()], [])", "ast.Pass()"),
        Change(_GENERATE, "_Generator._poll", "load_name('PAUSE')", "constant(False)"),
    ),
}
