"""The rules of permission files, each tried on its own examples, so that a mistake in one hides none in another.

Loading stops at the first rule whose examples fail (`settings`); this looks at all of them. `other_mistakes` are those
that are no rule's, such as a file that is not TOML or an unknown key. Decides on no call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.tools.permissions.rules import Effect, read_rules
from lyra.tools.permissions.settings import Layer, permissions_of

_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
_LENGTH_MAX: Final = 200


class TriedRule(NamedTuple):
    """`examples` counts those that were tried; `problem` says which of them fails, or what is wrong with the rule."""

    effect: Effect
    rule: str
    examples: int
    problem: str
    source: str

    @property
    def state(self) -> str:
        return "problem" if self.problem else "ok" if self.examples else "missing"


def try_rules(layers: Iterable[Layer], *, workspace: str, home: str) -> Iterator[TriedRule]:
    """Every rule of the layers. `missing` is the state of one without examples."""
    for layer in layers:
        for effect in _EFFECTS:
            entries = layer.settings.get(effect, ())
            is_list = isinstance(entries, Sequence) and not isinstance(entries, str)
            for entry in entries if is_list else [entries]:
                yield _tried(entry if is_list else [entry], effect, layer.place(effect), workspace, home)


def other_mistakes(layers: Iterable[Layer]) -> list[str]:
    """A sentence for each mistake in the files of the layers that is not one of a rule."""
    sentences = []
    for layer in layers:
        mistakes = list(layer.problems)
        for key, value in layer.settings.items():
            if key in _EFFECTS and key != "allow":
                continue
            checked = {key: value if key not in _EFFECTS else []}  # an allow has no place in a managed policy
            try:
                permissions_of([layer._replace(settings=checked)])
            except ConfigError as mistake:
                mistakes.append(mistake.message)
        sentences += [visible(f"{layer.file or layer.name}: {mistake}") for mistake in mistakes]
    return sentences


def _tried(entry: Any, effect: Effect, source: str, workspace: str, home: str) -> TriedRule:
    text = entry.get("rule") if isinstance(entry, Mapping) else entry
    problem = ""
    try:
        read_rules([entry], effect, source=source, workspace=workspace, home=home)
    except ConfigError as error:
        problem = error.message
    return TriedRule(effect, str(text)[:_LENGTH_MAX], _count(entry), problem, source)


def _count(entry: Any) -> int:
    if not isinstance(entry, Mapping):
        return 0
    given = [entry.get(key, ()) for key in ("match", "not_match")]
    return sum(
        1 if isinstance(examples, str) else len(examples)
        for examples in given
        if isinstance(examples, (str, list, tuple))
    )
