"""Effects as the kernel has met them: each function's declaration once, and one gate for each name.

A program hands a function to `ctx.do`; here it becomes the Effect it declares, remembered so that the next call costs a
look-up. The gate (rate limit and breaker) of an effect is shared by every process that performs it, that of an agent's
effect by every kernel too; an effect may have a second one that it shares with other effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core import limits
from lyra.core.effect import Effect
from lyra.core.policies.breaker import Admission, Admissions
from lyra.core.policies.policy import CircuitBreaker, RateLimit
from lyra.kernel.base.subsystem import State, Subsystem
from lyra.kernel.effects.gates import Gate, GateState, TwoGates

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process


_NO_KEYWORDS: dict[str, Any] = {}


class Declared(Subsystem):
    __slots__ = ("_core", "_effects", "_gate_of", "gate_state", "gates")

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.gate_state = GateState()
        self._effects: dict[Any, Effect] = {}
        self.gates: dict[Any, Gate] = {}
        self._gate_of: dict[Effect, Gate | TwoGates] = {}  # found before; hashing limits takes longer than passing them

    def states(self) -> tuple[State, ...]:
        return (self.gate_state,)

    def of(self, act: Any, options: dict[str, Any]) -> tuple[Effect, dict[str, Any]]:
        """The declared effect behind a function and options, and the keywords that are the function's own."""
        if not options:
            try:
                effect = self._effects.get(act)
            except TypeError:  # something callable without a hash
                return Effect.of(act), _NO_KEYWORDS
            if effect is None:
                effect = Effect.of(act)
                self._keep_effect(act, effect)
            return effect, _NO_KEYWORDS
        declared, keywords = Effect.split(options)
        key = (act, *sorted(declared.items(), key=_first)) if declared else act
        try:
            effect = self._effects.get(key)
        except TypeError:  # an option without a hash (a mapping, say): build it each time
            return Effect.of(act, **declared), keywords
        if effect is None:
            effect = Effect.of(act, **declared)
            self._keep_effect(key, effect)
        return effect, keywords

    def _keep_effect(self, key: Any, effect: Effect) -> None:
        if len(self._effects) >= limits.EFFECTS_KEPT:  # functions made anew for each call must not pile up
            self._effects.clear()
        self._effects[key] = effect

    def gate(self, effect: Effect) -> Gate | TwoGates:
        """The gate that all effects of one name with the same limits share; other limits are another gate."""
        gate = self._gate_of.get(effect)
        if gate is None:
            if len(self._gate_of) >= limits.EFFECTS_KEPT:
                self._gate_of.clear()
            gate = self._gate_of[effect] = self._gates_for(effect)
        return gate

    def _gates_for(self, effect: Effect) -> Gate | TwoGates:
        policy = effect.policy
        key = (effect.name, policy.rate_limit, policy.circuit_breaker)
        if effect.shared is None:
            return self.gates.get(key) or self._gate(key, effect.admissions)
        second = self._gate((*effect.shared, None))
        if policy.rate_limit is None and policy.circuit_breaker is None:
            return second
        return TwoGates(self._gate(key, effect.admissions), second)

    def _gate(
        self, key: tuple[str, RateLimit | None, CircuitBreaker | None], lasting: Admissions | None = None
    ) -> Gate:
        gate = self.gates.get(key)
        if gate is None:
            if len(self.gates) >= limits.EFFECTS_KEPT:
                self.gates = {key: gate for key, gate in self.gates.items() if gate.in_use}
                self._gate_of.clear()
            name, limit, circuit_breaker = key
            admission = lasting.on(self._core.clock) if lasting is not None else Admission(limit, circuit_breaker)
            gate = self.gates[key] = Gate(self._core, self.gate_state, name, limit, admission)
        return gate


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]
