"""Prices of calls by model, in whole micro-dollars, and the published context windows.

`price_of("anthropic/claude-sonnet-4-5")` is a `Price`, or None for an unknown one: it is shown as unknown, never
guessed and never zero. Prices come from a mapping of the user's own, from genai-prices (offline, imported at the first
question that needs it), or, for models that it does not list, from the provider's row in `lyra.core.providers`. Ollama
runs on the user's machine and costs nothing; so does `sim/echo`.

A `Price` counts exactly: a dollar for a million tokens is a micro-dollar a token, kept as an integer of `_SCALE`ths and
rounded up once per call. `worst_case` is never below the `cost` of any usage within its bounds, whatever was read from
or written to a cache and whatever tier it fell into; `affordable_output` is its inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.checking.check import check_keys
from lyra.core.clock import Clock, loop_clock
from lyra.core.providers import COMPATIBLE, USUAL, KnownModel
from lyra.errors import ConfigError
from lyra.models.stream import TokenUsage

if TYPE_CHECKING:
    from lyra.config import Config


OUTPUT_TOKENS_MAX: Final = 2**31 - 1  # the answer of affordable_output where output costs nothing
_SCALE: Final = 10**9  # parts of a micro-dollar; a rate below one part is rounded up
_USD_MAX: Final = 1_000_000  # for a million tokens
_KEPT_MAX: Final = 10_000  # models whose price was looked up
_REFRESH_S: Final = 3600.0  # prices that change with the date or the hour are looked up again after this
_KEYS: Final = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "cache_read_usd_per_mtok",
    "cache_write_usd_per_mtok",
    "request_usd",
)


class Rates(NamedTuple):
    """What one token costs, in `_SCALE`ths of a micro-dollar, when more than `above` tokens go in."""

    above: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class Price:
    """The price of one model. `tiers` are ordered; the last one whose `above` is passed counts for the whole call."""

    __slots__ = ("_base", "_request", "_worst", "tiers")

    def __init__(self, tiers: tuple[Rates, ...], request: int = 0) -> None:
        assert tiers, "a price has at least one tier"
        assert tiers[0].above == -1, "the first tier is that of any call"
        self.tiers = tiers
        self._base = tiers[0] if len(tiers) == 1 else None
        self._request = request
        # (first input that pays it, last input that pays it, the dearest token in, the dearest token out)
        ends = (*(tier.above for tier in tiers[1:]), None)
        self._worst = tuple(
            (tier.above, end, max(tier.input, tier.cache_read, tier.cache_write), max(tier.output, tier.reasoning))
            for tier, end in zip(tiers, ends, strict=True)
        )

    def cost(self, usage: TokenUsage) -> int:
        """Micro-dollars of one call, rounded up."""
        read, write = usage.cache_read_tokens, usage.cache_write_tokens
        plain = usage.input_tokens if usage.cached_apart else usage.input_tokens - read - write
        rates = self._base or self._rates(usage.total_input)
        parts = self._request + rates.output * usage.output_tokens
        if plain > 0:
            parts += rates.input * plain
        if read:
            parts += rates.cache_read * read
        if write:
            parts += rates.cache_write * write
        if rates.reasoning != rates.output:
            parts += (rates.reasoning - rates.output) * min(usage.reasoning_tokens, usage.output_tokens)
        return -(-parts // _SCALE)

    def worst_case(self, input_tokens: int, max_output_tokens: int) -> int:
        """Return the most that a call within these bounds can cost."""
        if self._base is not None:
            _, _, dearest_in, dearest_out = self._worst[0]
            return -(-(self._request + dearest_in * input_tokens + dearest_out * max_output_tokens) // _SCALE)
        return -(-max(fixed + rate * max_output_tokens for fixed, rate in self._reachable(input_tokens)) // _SCALE)

    def affordable_output(self, micro_usd: int, input_tokens: int) -> int:
        """Return the most output tokens that the money pays after the input; 0: not even one."""
        tokens = OUTPUT_TOKENS_MAX
        for fixed, rate in self._reachable(input_tokens):
            left = micro_usd * _SCALE - fixed
            if left < 0:
                return 0
            if rate:
                tokens = min(tokens, left // rate)
        return tokens

    @property
    def usd_per_mtok(self) -> tuple[float, float]:
        """Dollars for a million tokens in and out, of a call that no higher tier is for."""
        return self.tiers[0].input / _SCALE, self.tiers[0].output / _SCALE

    @property
    def is_free(self) -> bool:
        return not self._request and not any(any(tier[1:]) for tier in self.tiers)

    def _rates(self, total_input: int) -> Rates:
        rates = self.tiers[0]
        for tier in self.tiers:
            if total_input > tier.above:
                rates = tier
        return rates

    def covers(self, other: Price) -> bool:
        """Return whether no rate is lower than that of `other`, so that a budget may use this price instead."""
        return self._request >= other._request and all(
            min(tier[column] for tier in self.tiers) >= max(tier[column] for tier in other.tiers)
            for column in range(1, 6)
        )

    def _reachable(self, input_tokens: int) -> list[tuple[int, int]]:
        """(highest cost of the input, highest cost of an output token) for each tier that the input can fall into."""
        tiers = []
        for above, end, dearest_in, dearest_out in self._worst:
            if input_tokens > above:
                tokens = input_tokens if end is None else min(input_tokens, end)
                tiers.append((self._request + dearest_in * tokens, dearest_out))
        return tiers

    @classmethod
    def per_mtok(
        cls,
        input_usd: Any,
        output_usd: Any,
        *,
        cache_read_usd: Any = None,
        cache_write_usd: Any = None,
        request_usd: Any = 0,
    ) -> Price:
        """Return a price in dollars for a million tokens; cache tokens without a price cost as much as input."""
        into, out = _rate(input_usd), _rate(output_usd)
        read = into if cache_read_usd is None else _rate(cache_read_usd)
        write = into if cache_write_usd is None else _rate(cache_write_usd)
        return cls((Rates(-1, into, out, read, write, out),), _rate(request_usd) * 1_000_000)

    @classmethod
    def from_data(cls, data: Any) -> Price:
        """Return a price from a mapping with `input_usd_per_mtok`, `output_usd_per_mtok` and, where they differ, those
        of the cache."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"a price is a mapping of dollars for a million tokens, not {data!r}")
        check_keys(data, _KEYS, "a price")
        for key in _KEYS[:2]:
            if key not in data:
                raise ConfigError(f"a price has {key!r}", key=key)
        amounts = {key: _usd(value, key) for key, value in data.items()}
        return cls.per_mtok(
            amounts[_KEYS[0]],
            amounts[_KEYS[1]],
            cache_read_usd=amounts.get(_KEYS[2]),
            cache_write_usd=amounts.get(_KEYS[3]),
            request_usd=amounts.get(_KEYS[4], 0),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Price) and self.tiers == other.tiers and self._request == other._request

    def __hash__(self) -> int:
        return hash((self.tiers, self._request))

    def __repr__(self) -> str:
        base = self.tiers[0]
        more = " and tiers" if len(self.tiers) > 1 else ""
        return f"Price(${_render_rate(base.input)} in, ${_render_rate(base.output)} out, for a million tokens{more})"


FREE: Final = Price((Rates(-1, 0, 0, 0, 0, 0),))


class Prices:
    """Look-ups, remembered. `overrides`: `{"provider/model": {"input_usd_per_mtok": …, …}}` or Prices.

    A price of `raising`, by name, holds only if no published rate of that model is higher.
    """

    def __init__(
        self,
        overrides: Mapping[str, Any] | None = None,
        *,
        raising: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or loop_clock()
        self._raising = {name: _override(name, price) for name, price in (raising or {}).items()}
        self._known: dict[str, Price | None] = {
            name: price if isinstance(price, Price) else _override(name, price)
            for name, price in (overrides or {}).items()
        }
        self._given = frozenset(self._known)
        self._until: dict[str, float] = {}  # when a price that changes is looked up again
        self._embeddings: dict[str, Price | None] = {}  # of models that are priced by their input alone

    @classmethod
    def from_config(cls, config: Config, *, clock: Clock | None = None) -> Prices:
        """Return the prices of the settings; those of a project count only if they are not below the published ones."""
        theirs = {name: config.prices[name] for name in config.project_prices}
        own = {name: price for name, price in config.prices.items() if name not in theirs}
        return cls(own, raising=theirs, clock=clock)

    def find(self, name: str) -> Price | None:
        """Return the price of `provider/model`; None if it is not known."""
        if name in self._known and (name not in self._until or self._clock.monotonic() < self._until[name]):
            return self._known[name]
        return self._look_up(name)

    def find_for_embeddings(self, name: str) -> Price | None:
        """Return the price of a call that gives numbers and no text: such a model may have no price for output."""
        price = self.find(name)
        if price is None and name not in self._embeddings:
            if len(self._embeddings) >= _KEPT_MAX:
                self._embeddings.clear()
            provider, _, model = name.partition("/")
            is_published = bool(model) and provider != "sim"
            now = self._clock.now()
            self._embeddings[name] = (
                _find_published(_price_list(provider), model, now, embeds=True)[0] if is_published else None
            )
        return price if price is not None else self._embeddings[name]

    def _look_up(self, name: str) -> Price | None:
        provider, _, model = name.partition("/")
        is_local = USUAL.get(provider, COMPATIBLE).is_local
        if is_local and (provider != "sim" or model == "echo"):
            price: Price | None = FREE
        elif is_local or not model:
            price = None
        else:
            price, changes = _find_published(_price_list(provider), model, self._clock.now())
            if price is None and (known := _find_model(provider, model)):
                price = Price.per_mtok(known.input_usd_per_mtok, known.output_usd_per_mtok)
            if changes:
                self._until[name] = self._clock.monotonic() + _REFRESH_S
        raised = self._raising.get(name)
        if raised is not None and (price is None or raised.covers(price)):
            price = raised
        if len(self._known) >= _KEPT_MAX + len(self._given):  # names may come from outside
            self._known = {known: self._known[known] for known in self._given}
            self._until.clear()
        self._known[name] = price
        return price


_USUAL: Final = Prices()


def price_of(name: str) -> Price | None:
    """Return the published price of `provider/model`; None if it is not known."""
    return _USUAL.find(name)


def _find_model(provider: str, model: str) -> KnownModel | None:
    """Return the model in the provider's row of the table; None if it is not there."""
    return next((known for known in USUAL.get(provider, COMPATIBLE).models if known.name == model), None)


# ---------------------------------------------------------------- genai-prices
def _price_list(provider: str) -> str:
    """Return the name of a provider in genai-prices."""
    return USUAL.get(provider, COMPATIBLE).prices or provider


def _find_published(provider_id: str, model: str, now: float, *, embeds: bool = False) -> tuple[Price | None, bool]:
    """Return the price in force now, and whether it may be another one later. `embeds`: a price for input is enough."""
    model_info = _find(provider_id, model)
    if model_info is None:
        return None, False
    prices = model_info.get_prices(datetime.fromtimestamp(now, UTC))
    return _price(prices, embeds=embeds), isinstance(model_info.prices, list)


def list_published_names(provider: str) -> list[str]:
    """Return the names of a provider's models whose data are published, those that are deprecated left out."""
    from genai_prices.data_snapshot import get_snapshot

    wanted = _price_list(provider)
    models = next((known.models for known in get_snapshot().providers if known.id == wanted), ())
    own = (known.name for known in USUAL.get(provider, COMPATIBLE).models)
    return sorted({*own, *(model.id for model in models if not model.deprecated)})


def _find(provider_id: str, model: str) -> Any:
    from genai_prices.data_snapshot import get_snapshot

    providers = get_snapshot().providers
    # By the exact id: a user's server called "my-openai" has other prices.
    provider = next((candidate for candidate in providers if candidate.id == provider_id), None)
    return provider.find_model(model, all_providers=providers) if provider is not None else None


def _price(prices: Any, *, embeds: bool = False) -> Price | None:
    """Return a Price from data of genai-prices; None for a model that is not priced by input and output tokens."""
    if prices.input_mtok is None or (prices.output_mtok is None and not embeds):
        return None
    output = _first(prices.output_mtok, Decimal(0))
    fields = {
        "input": prices.input_mtok,
        "output": output,
        "cache_read": _first(prices.cache_read_mtok, prices.input_mtok),
        "cache_write": _first(prices.cache_write_mtok, prices.input_mtok),
        "reasoning": _first(prices.output_reasoning_mtok, output),
    }
    starts = sorted({tier.start for field in fields.values() for tier in getattr(field, "tiers", ())})
    tiers = tuple(
        Rates(above, **{name: _rate(_price_above(field, above)) for name, field in fields.items()})
        for above in (-1, *starts)
    )
    per_thousand = prices.requests_kcount
    request = _rate(_price_above(per_thousand, -1)) * 1_000 if per_thousand is not None else 0
    return Price(tiers, request)


def _first(price: Any, usual: Any) -> Any:
    return usual if price is None else price


def _price_above(price: Any, above: int) -> Decimal:
    """Return the price of a token when more than `above` go in."""
    if isinstance(price, Decimal):
        return price
    rate: Decimal = price.base
    for tier in price.tiers:
        if tier.start <= above:
            rate = tier.price
    return rate


# ---------------------------------------------------------------- numbers
def _usd(value: Any, key: str) -> Decimal:
    """Return an amount from its decimal digits: 0.1 is exactly a tenth, not the nearest float."""
    try:
        amount = None if isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or not 0 <= amount <= _USD_MAX:
        raise ConfigError(f"{key} is an amount of dollars, not {value!r}", key=key)
    return amount


def _rate(usd_per_mtok: Any) -> int:
    """Scale a rate: a dollar for a million tokens is a micro-dollar a token."""
    return int((Decimal(usd_per_mtok) * _SCALE).to_integral_value(rounding=ROUND_CEILING))


def _override(name: str, data: Any) -> Price:
    try:
        return Price.from_data(data)
    except ConfigError as error:
        raise ConfigError(f"the price of {name}: {error.message}", hint=error.hint, key=f"prices.{name}") from None


def _render_rate(rate: int) -> str:
    return f"{Decimal(rate) / _SCALE:f}"


@lru_cache(maxsize=1_024)
def context_window(name: str) -> int | None:
    """Return the context window of `provider/model` in tokens; None if it is not published."""
    provider, _, model = name.partition("/")
    published = _find(_price_list(provider), model) if model and provider != "sim" else None
    if published is not None:
        window: int | None = published.context_window
        return window
    known = _find_model(provider, model)
    return known.window if known is not None else None
