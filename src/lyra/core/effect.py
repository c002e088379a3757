"""An Effect: one kind of act that leaves a process, declared once and performed through the kernel's door.

    @effect(needs="net.http:api.example.com", cost="$0.01", idempotent=True, retry=3)
    async def fetch(url: str) -> Page: ...

    page = await ctx.do(fetch, url)

Owns what is declared (the function, the capabilities it needs, what it costs, whether doing it twice is as good as
once, how to react when it fails) and `canonical_hash`, by which a replay knows that the program asks for the same
thing again. A plain async function is an Effect with nothing declared. `Charged` is how a function says what it
really cost. Performs nothing itself; next: `lyra.kernel.effects.door`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, overload

import msgspec

from lyra.core.budgets.budget import NOTHING, Usage
from lyra.core.checking.check import known_keys
from lyra.core.codec import canonical, decode, decoder_for
from lyra.core.naming import qualified_name
from lyra.core.policies.admission import Admissions
from lyra.core.policies.policy import CircuitBreaker, Policy, RateLimit, Retry
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError, Corrupt

__all__ = ["HASH_BYTES", "OPTIONS", "Charged", "Effect", "canonical_hash", "effect"]

HASH_BYTES: Final = 12  # 96 bits: two different effects of one process never meet by chance

# What may be declared, at the function or at the call; any other keyword belongs to the function.
OPTIONS: Final[dict[str, str]] = {
    "name": "what the journal calls it; by default module:function",
    "idempotent": "doing it twice is as good as once, so a crash in the middle is simply retried",
    "needs": "capabilities, or a function of the arguments that gives them",
    "cost": "the most it may cost; reserved before it runs",
    "quote": "the same, as a function of the budget and the arguments, asked when the call is made",
    "retry": "how often and when to try again: a number, a mapping or a Retry",
    "timeout_s": "seconds one try may take",
    "rate_limit": "requests and tokens a minute, shared by all processes",
    "circuit_breaker": "when to stop asking, shared by all processes",
    "policy": "the four above in one",
}


def canonical_hash(name: str, args: Any, kwargs: Mapping[str, Any]) -> bytes:
    """The same for the same request: keyword order, and tuple or list, make no difference; 1, 1.0 and True do."""
    hasher = _hasher.copy()  # cheaper than setting one up
    hasher.update(canonical((name, args, kwargs)))
    return hasher.digest()


_hasher: Final = blake2b(digest_size=HASH_BYTES)


class Charged(msgspec.Struct, frozen=True):
    """What an effect's function may return: the value for the program, and the usage to settle with."""

    value: Any
    usage: Any  # a Usage, or anything that Usage.of takes

    def __post_init__(self) -> None:
        if not isinstance(self.usage, Usage):
            msgspec.structs.force_setattr(self, "usage", Usage.of(self.usage))


class Effect:
    """A declared act. Immutable; made once a function and shared by every call."""

    __slots__ = (
        "_needs",
        "about",
        "admissions",
        "cost",
        "cost_data",
        "decode",
        "digest",
        "free",
        "gated",
        "idempotent",
        "name",
        "needy",
        "plain",
        "policy",
        "quote",
        "retry",
        "run",
        "shared",
        "skipped",
        "takes_key",
        "timeout_s",
        "tokens",
        "typed",
        "unchanged",
    )

    def __init__(
        self,
        run: Callable[..., Awaitable[Any]],
        *,
        name: str | None = None,
        idempotent: bool = False,
        needs: Any = (),
        cost: Any = None,
        retry: Any = None,
        timeout_s: float | None = None,
        rate_limit: Any = None,
        circuit_breaker: Any = None,
        policy: Any = None,
        quote: Callable[..., Usage] | None = None,
        shared: tuple[str, RateLimit] | None = None,
        lasting: bool = False,
        about: Callable[..., str] | None = None,
        skipped: Callable[[Any], Any] | None = None,
        unchanged: Callable[[Any], bool] | None = None,
    ) -> None:
        if not callable(run):
            raise ConfigError(f"an effect is an async function, not {run!r}")
        if not isinstance(idempotent, bool):
            raise ConfigError(f"idempotent is {idempotent!r}", hint="say True or False")
        whole = Policy.of(policy)
        self.policy = Policy(
            retry=Retry.of(retry) if retry is not None else whole.retry,
            rate_limit=RateLimit.of(rate_limit) if rate_limit is not None else whole.rate_limit,
            circuit_breaker=CircuitBreaker.of(circuit_breaker)
            if circuit_breaker is not None
            else whole.circuit_breaker,
            timeout_s=timeout_s if timeout_s is not None else whole.timeout_s,
        )
        self.run = run
        self.name = name if name is not None else qualified_name(run)
        self.idempotent = idempotent
        self.digest = canonical_hash(self.name, (), {})  # of a call without arguments
        self.cost = Usage.of(cost) if cost is not None else NOTHING
        self.quote = quote
        self.about = about  # a call in a person's words, where somebody has to be asked about it
        self.skipped = skipped  # the value of a call that was skipped, from the data of whoever decided that
        self.unchanged = unchanged  # whether a value is sure to be the same after it was written and read back
        self.cost_data = self.cost.to_data() if self.cost else None
        self.retry = self.policy.retry
        self.timeout_s = self.policy.timeout_s
        self.shared = shared  # a second limit, by name: of what many effects draw on, as agents do on a model
        self.admissions = (
            Admissions(self.policy.rate_limit, self.policy.circuit_breaker) if lasting else None
        )  # one for all kernels that perform it
        self.gated = not (self.policy.rate_limit is None and self.policy.circuit_breaker is None and shared is None)
        self.tokens = self.cost["input_tokens"] + self.cost["output_tokens"]
        self._needs = needs if callable(needs) else _capabilities(needs)
        self.needy = bool(self._needs)
        self.takes_key, self.decode = _signature(run)
        self.typed = self.decode is not decode
        self.plain = not (self.gated or self.retry or self.timeout_s or self.takes_key)
        # Nothing to check, to reserve or to wait for before it runs.
        self.free = self.plain and not self.needy and quote is None and not self.cost.items

    @classmethod
    def of(cls, act: Any, **options: Any) -> Effect:
        """The Effect behind a function or an Effect, with what a call declares on top."""
        if isinstance(act, Effect):
            return act.with_options(**options) if options else act
        declared = getattr(act, "__lyra_effect__", None)
        return cls(act, **{**(declared or {}), **options})

    @staticmethod
    def split(keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Keywords of a call: (what is declared, what the function gets)."""
        declared = {key: value for key, value in keywords.items() if key in OPTIONS}
        if len(declared) == len(keywords):
            return declared, {}
        return declared, {key: value for key, value in keywords.items() if key not in OPTIONS}

    def with_options(self, **options: Any) -> Effect:
        known_keys(options, tuple(OPTIONS), "an effect")
        settings: dict[str, Any] = {
            "name": self.name,
            "idempotent": self.idempotent,
            "needs": self._needs,
            "cost": self.cost,
            "policy": self.policy,
            "quote": self.quote,
            "shared": self.shared,
            "lasting": self.admissions is not None,
            "about": self.about,
            "skipped": self.skipped,
            "unchanged": self.unchanged,
        }
        return Effect(self.run, **{**settings, **options})

    def needs_for(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[Capability]:
        """The capabilities this call needs."""
        if isinstance(self._needs, tuple):
            return self._needs
        return _capabilities(self._needs(*args, **kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Calling it directly is calling the function: for tests, and for code outside any process."""
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Effect {self.name}>"


@overload
def effect(function: Callable[..., Awaitable[Any]], /, **options: Any) -> Effect: ...


@overload
def effect(function: None = None, /, **options: Any) -> Callable[[Callable[..., Awaitable[Any]]], Effect]: ...


def effect(function: Callable[..., Awaitable[Any]] | None = None, /, **options: Any) -> Any:
    """Declare an async function as an Effect: `@effect` or `@effect(cost="$0.01", …)`."""
    known_keys(options, tuple(OPTIONS), "an effect")
    if function is None:
        return lambda wrapped: Effect(wrapped, **options)
    return Effect(function, **options)


def _capabilities(needs: Any) -> tuple[Capability, ...]:
    if isinstance(needs, (str, Capability)):
        needs = (needs,)
    try:
        return tuple(need if isinstance(need, Capability) else Capability.parse(need) for need in needs or ())
    except TypeError:
        raise ConfigError(f"needs is {needs!r}", hint="give capabilities such as 'fs.read:/project/**'") from None


def _signature(run: Any) -> tuple[bool, Callable[[bytes], Any]]:
    """Whether the function takes an `idempotency_key`, and how to read its saved result back as its declared type."""
    import inspect

    try:
        signature = inspect.signature(run)
    except (TypeError, ValueError):
        return False, decode
    takes_key = "idempotency_key" in signature.parameters
    if signature.return_annotation in (signature.empty, None):
        return takes_key, decode
    try:
        wanted = inspect.get_annotations(getattr(run, "func", run), eval_str=True).get("return")
    except Exception:  # noqa: BLE001 - an annotation that cannot be looked up: the plain value will do
        return takes_key, decode
    return takes_key, typed_decoder(wanted)


def typed_decoder(annotation: Any) -> Callable[[bytes], Any]:
    """Read as the annotated type; what does not fit the annotation comes back plain, live and on replay alike."""
    if annotation is None or (isinstance(annotation, type) and annotation in _PLAIN):
        return decode
    typed = decoder_for(annotation)
    if typed is decode:
        return decode

    def read(data: bytes) -> Any:
        try:
            return typed(data)
        except Corrupt:
            return decode(data)

    return read


_PLAIN: Final = frozenset({bool, int, float, str, bytes, dict, list, object})
