"""An Effect: one kind of act that leaves a process, declared once and performed through the kernel's door.

    @effect(needs="net.http:api.example.com", cost="$0.01", idempotent=True, retry=3)
    async def fetch(url: str) -> Page: ...

    page = await ctx.do(fetch, url)

Owns the declaration (the function, the capabilities it needs, its cost, whether it is idempotent, how failures are
handled) and `canonical_hash`, by which a replay checks that the program makes the same request again. A plain async
function is an Effect with nothing declared. A function returns `Charged` to report what it really cost. Performs
nothing itself; next: `lyra.kernel.effects.door`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypedDict, TypeVar, get_args, get_origin, overload

import msgspec

from lyra.core.budgets.budget import NOTHING, Amount, Usage, read_cost
from lyra.core.checking.check import check_keys, sendable_text
from lyra.core.codec import canonical, decode, decoder_for
from lyra.core.hints import Parameters, Result_co, resolve_hint
from lyra.core.naming import get_qualified_name
from lyra.core.policies.breaker import Admissions
from lyra.core.policies.policy import CircuitBreaker, Policy, RateLimit, Retry
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError, Corrupt

if TYPE_CHECKING:
    from typing import Unpack


T = TypeVar("T")

HASH_BYTES: Final = 12  # 96 bits: no collision between two requests of one process in practice

# Options of a declaration, at the function or at the call; any other keyword is an argument of the function.
OPTIONS: Final[dict[str, str]] = {
    "name": "what the journal calls it; by default module:function",
    "idempotent": "doing it twice is as good as once, so a crash in the middle is simply retried",
    "needs": "capabilities, or a function of the arguments that gives them; at a call, more than those declared",
    "cost": "the most it may cost, reserved before it runs; at a call, where it is more than what is declared",
    "quote": "the same, as a function of the budget and the arguments, asked when the call is made",
    "retry": "how often and when to try again: a number, a mapping or a Retry",
    "timeout_s": "seconds one try may take",
    "rate_limit": "requests and tokens a minute, shared by all processes",
    "circuit_breaker": "when to stop asking, shared by all processes",
    "policy": "the four above in one",
}


class EffectOptions(TypedDict, total=False):
    """The types of OPTIONS."""

    name: str
    idempotent: bool
    needs: str | Capability | Iterable[str | Capability] | Callable[..., Any]
    cost: Amount | None
    quote: Callable[..., Usage] | None
    retry: Retry | int | Mapping[str, Any] | None
    timeout_s: float | None
    rate_limit: RateLimit | Mapping[str, Any] | None
    circuit_breaker: CircuitBreaker | Mapping[str, Any] | None
    policy: Policy | Mapping[str, Any] | None


def canonical_hash(name: str, args: Any, kwargs: Mapping[str, Any]) -> bytes:
    """Return a hash that is equal for equal requests: keyword order does not matter, nor tuple or list; 1, 1.0 and True
    differ."""
    hasher = _hasher.copy()  # cheaper than a new hasher
    hasher.update(canonical((name, args, kwargs)))
    return hasher.digest()


_hasher: Final = blake2b(digest_size=HASH_BYTES)


class Charged(msgspec.Struct, Generic[Result_co], frozen=True):
    """What an effect's function may return: the value for the program, and the usage to settle with."""

    value: Result_co
    usage: Any  # a Usage, or anything that Usage.of takes

    def __post_init__(self) -> None:
        if not isinstance(self.usage, Usage):
            msgspec.structs.force_setattr(self, "usage", Usage.of(self.usage))


class PerformedOutside(Protocol):
    """What an effect adds that another program performs: the kernel may restart while that program continues.

    Its function takes a keyword `begin`. It awaits `begin()` right before the other program gets the work, or
    `begin(True)` where the work may be given to another one: until then a restart simply calls the function again. Each
    method below gets the arguments of the call, and its idempotency key: "" where the function takes none.
    """

    async def find_out(self, *args: Any, may_repeat: bool, idempotency_key: str) -> Any:
        """After a restart, for work that had begun: its value or its error. Where the other program does not come back,
        the work is done again if it `may_repeat`; otherwise OutcomeUnknown."""
        ...

    def on_asked(self, interrupt_id: str, *args: Any, idempotency_key: str) -> None:
        """Note that a person is asked what became of it."""
        ...

    def on_settled(self, is_durable: bool, /, *args: Any, idempotency_key: str) -> None:
        """Note that the call is over: its value or its error is durable, or it was given up."""
        ...


class Effect(Generic[Parameters, Result_co]):
    """A declared act. Immutable; made once for a function and shared by every call."""

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
        "needs",
        "needy",
        "on_retry",
        "outside",
        "plain",
        "policy",
        "quote",
        "rejoins",
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
        outside: PerformedOutside | None = None,
        rejoins: bool = False,
        on_retry: Callable[..., object] | None = None,
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
        self.name = sendable_text(name, "an effect's name") if name is not None else get_qualified_name(run)
        self.idempotent = idempotent
        self.digest = canonical_hash(self.name, (), {})  # the hash of a call without arguments
        self.cost = read_cost(cost) if cost is not None else NOTHING
        self.quote = quote
        self.about = about  # describes a call in plain words, for a question to a person
        self.skipped = skipped  # gives the value of a skipped call from the data of the decision to skip it
        self.unchanged = unchanged  # tells whether a value is the same after it was written and read back
        self.on_retry = on_retry  # told (the arguments, and as keywords attempt, of, wait_s, error) before each wait
        self.outside = outside
        self.rejoins = rejoins  # made again after a crash, it finds what it waits for: that is no further attempt
        self.cost_data = self.cost.to_data() if self.cost else None
        self.retry = self.policy.retry
        self.timeout_s = self.policy.timeout_s
        self.shared = shared  # a second rate limit, by name, that several effects share (all calls of one model)
        self.admissions = (
            Admissions(self.policy.rate_limit, self.policy.circuit_breaker) if lasting else None
        )  # shared by all kernels that perform the effect
        self.gated = not (self.policy.rate_limit is None and self.policy.circuit_breaker is None and shared is None)
        self.tokens = self.cost["input_tokens"] + self.cost["output_tokens"]
        self._needs = needs if callable(needs) else _capabilities(needs)
        self.needs: tuple[Capability, ...] | None = None if callable(needs) else self._needs  # None: each call's own
        self.needy = bool(self._needs)
        self.takes_key, returns = _signature(run)
        if not _may_be_awaited(run, returns):
            raise ConfigError(
                f"{self.name} is not an async function",
                hint="make it `async def`, or await asyncio.to_thread(…) in one; a plain function that returns an"
                " awaitable says so: `-> Awaitable[…]`",
            )
        self.decode = decode if returns in (_UNKNOWN, Any) else make_typed_decoder(returns)
        self.typed = self.decode is not decode
        self.plain = not (self.gated or self.retry or self.timeout_s or self.takes_key or outside is not None)
        # Nothing to check, to reserve or to wait for before it runs.
        self.free = self.plain and not self.needy and quote is None and not self.cost.packed

    @classmethod
    def of(cls, act: Any, **options: Any) -> Effect:
        """Return the Effect of a function or an Effect, with the options of a call applied."""
        if isinstance(act, Effect):
            return act.with_options(**options) if options else act
        declared = getattr(act, "__lyra_effect__", None)
        return cls(act, **options) if declared is None else cls(act, **{**declared, **_add_options(declared, options)})

    @staticmethod
    def split(keywords: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split the keywords of a call into (options, arguments of the function)."""
        declared = {key: value for key, value in keywords.items() if key in OPTIONS}
        if len(declared) == len(keywords):
            return declared, {}
        return declared, {key: value for key, value in keywords.items() if key not in OPTIONS}

    def with_options(self, **options: Any) -> Effect[Parameters, Result_co]:
        check_keys(options, tuple(OPTIONS), "an effect")
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
            "outside": self.outside,
            "rejoins": self.rejoins,
            "on_retry": self.on_retry,
        }
        return Effect(self.run, **{**settings, **_add_options(settings, options)})

    def needs_for(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[Capability]:
        """Return the capabilities this call needs."""
        if isinstance(self._needs, tuple):
            return self._needs
        return _capabilities(self._needs(*args, **kwargs))

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Awaitable[Result_co]:
        """Call the function directly: for tests, and for code outside any process."""
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Effect {self.name}>"


class _Declaring(Protocol):
    """The decorator that `effect(…)` with options gives."""

    @overload
    def __call__(self, function: Callable[Parameters, Awaitable[Charged[T]]], /) -> Effect[Parameters, T]: ...
    @overload
    def __call__(self, function: Callable[Parameters, Awaitable[T]], /) -> Effect[Parameters, T]: ...


@overload
def effect(
    function: Callable[Parameters, Awaitable[Charged[T]]], /, **options: Unpack[EffectOptions]
) -> Effect[Parameters, T]: ...


@overload
def effect(
    function: Callable[Parameters, Awaitable[T]], /, **options: Unpack[EffectOptions]
) -> Effect[Parameters, T]: ...


@overload
def effect(function: None = None, /, **options: Unpack[EffectOptions]) -> _Declaring: ...


def effect(function: Any = None, /, **options: Any) -> Any:
    """Declare an async function as an Effect: `@effect` or `@effect(cost="$0.01", …)`."""
    check_keys(options, tuple(OPTIONS), "an effect")
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


def _add_options(declared: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call over a declaration: what a call needs and may cost can grow and never shrink. The
    cost is the larger of the two in each dimension."""
    added = dict(options)
    if "needs" in added and declared.get("needs"):
        added["needs"] = _both(declared["needs"], added["needs"])
    cost = Usage.of(declared["cost"]) if declared.get("cost") else NOTHING
    if "cost" in added:
        added["cost"] = _larger(cost, read_cost(added["cost"]) if added["cost"] is not None else NOTHING)
    first, second = declared.get("quote"), added.get("quote")
    if first is None and second is not None and cost:
        added["quote"] = lambda budget, *args, **kwargs: _larger(cost, second(budget, *args, **kwargs))
    elif first is not None and "quote" in added:
        added["quote"] = first if second is None else _larger_quote(first, second)
    return added


def _larger(declared: Usage, added: Usage) -> Usage:
    """Return the larger of two costs in each dimension."""
    if not (declared.packed and added.packed):
        return declared if declared.packed else added
    mine, theirs = declared.to_data(), added.to_data()
    return Usage.from_data({name: max(mine.get(name, 0), theirs.get(name, 0)) for name in {**mine, **theirs}})


def _larger_quote(first: Callable[..., Usage], second: Callable[..., Usage]) -> Callable[..., Usage]:
    return lambda budget, *args, **kwargs: _larger(first(budget, *args, **kwargs), second(budget, *args, **kwargs))


def _both(declared: Any, added: Any) -> Any:
    if callable(declared) or callable(added):

        def needs(*args: Any, **kwargs: Any) -> list[Capability]:
            listed = (given(*args, **kwargs) if callable(given) else given for given in (declared, added))
            return [need for needs_of_one in listed for need in _capabilities(needs_of_one)]

        return needs
    return (*_capabilities(declared), *_capabilities(added))


_UNKNOWN: Final = object()  # a function does not tell what it returns


def _signature(run: Any) -> tuple[bool, Any]:
    """Tell whether the function takes an `idempotency_key`, and the type of its result, where that can be found out."""
    import inspect

    try:
        signature = inspect.signature(run)
    except (TypeError, ValueError):
        return False, _UNKNOWN
    takes_key = "idempotency_key" in signature.parameters
    if signature.return_annotation is signature.empty:
        return takes_key, _UNKNOWN
    try:
        returns = resolve_hint(run, signature.return_annotation)
    except Exception:  # noqa: BLE001 - an annotation that cannot be resolved may name anything
        return takes_key, Any
    return takes_key, get_args(returns)[0] if get_origin(returns) is Charged else returns


def _may_be_awaited(run: Any, returns: Any) -> bool:
    """Return whether calling it can give an awaitable: only a `def` that is not async, wraps no async function and says
    nothing of an awaitable certainly does not."""
    import inspect
    from functools import partial

    function = inspect.unwrap(run)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    if not inspect.isroutine(function) or getattr(function, "__name__", "") == "<lambda>":
        return True
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE):
        return True
    origin = get_origin(returns) or returns
    return origin is Any or (isinstance(origin, type) and issubclass(origin, Awaitable))


def make_typed_decoder(annotation: Any) -> Callable[[bytes], Any]:
    """Return a decoder for the annotated type; a value that does not fit it comes back as plain data, live and on
    replay."""
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
