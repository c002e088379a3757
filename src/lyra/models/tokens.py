"""How many tokens a Request will take, before it is sent.

`Measure` counts the bytes of a Request, and remembers: of a conversation that grew by a turn only the new messages are
counted. `Estimator` makes tokens of them, per model, on the high side, since a budget reserves the estimate:

    what the provider counted for the same conversation when it was shorter (exact)
    + the bytes added since, at a rate above that of real tokenizers: `WORDY` for text with spaces, `DENSE` for the rest
    + images, tools and the marks around messages

Where a conversation is new, the rate for text with spaces is the one learned from the model's answers, and a margin.
A provider that counts more than was estimated raises the estimates from then on. Prices are in `pricing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool
from lyra.models.provider import Request
from lyra.models.stream import TokenUsage

WORDY: Final = 0.5  # tokens a byte; prose is near 0.25, code near 0.35
DENSE: Final = 1.0  # no byte-level tokenizer makes more of base64, hexadecimal or emoji
MARGIN: Final = 1.3  # on a learned rate
IMAGE_TOKENS: Final = 5_000  # an image as large as providers take them
MESSAGE_TOKENS: Final = 8  # role, separators: what a message takes beside its text
TOOLS_TOKENS: Final = 600  # what providers tell their models about the use of tools
BASE_TOKENS: Final = 16
_SHORT: Final = 64  # bytes; shorter texts count as dense without a look
_SPACING: Final = 16  # bytes a separator: text has one in six, base64 none
_LEARN_BYTES_LEAST: Final = 200  # of fewer bytes the marks would dominate the rate
_REMEMBERED_MAX: Final = 256  # conversations
_REMEMBERED_LEAST: Final = 8  # messages; counting fewer again is as quick as a lookup


class Size(NamedTuple):
    """Bytes of text with spaces, bytes of anything else, images."""

    wordy: int
    dense: int
    images: int

    @property
    def bytes(self) -> int:
        return self.wordy + self.dense


_make_size: Final[Callable[[Iterable[int]], Size]] = partial(tuple.__new__, Size)  # a third of the time of Size(…)
_UNKNOWN: Final[tuple[tuple[Message, ...], Size]] = ((), Size(0, 0, 0))


class Measure:
    """Counts Requests; keeps the sums of the conversations it saw last."""

    __slots__ = ("_known", "_tools")

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Message, ...], Size]] = {}
        self._tools: dict[int, tuple[tuple[Tool, ...], Size]] = {}

    def size(self, request: Request) -> Size:
        """Return the size of all that is sent: messages, system, tools, schema."""
        size = self.messages(request.messages)
        if not (request.system or request.tools or request.output_schema):
            return size
        counted = list(size)
        if request.system:
            _text(request.system, counted)
        if request.output_schema is not None:
            _value(request.output_schema, counted)
        if request.tools:
            wordy, dense, _ = self._tools_size(request.tools)
            counted[0] += wordy
            counted[1] += dense
        return _make_size(counted)

    def messages(self, messages: tuple[Message, ...]) -> Size:
        if len(messages) < _REMEMBERED_LEAST:
            return _measure_messages(messages, (0, 0, 0))
        key = id(messages[0])
        known, size = self._known.pop(key, _UNKNOWN)
        if messages is not known:
            done = len(known)
            if messages[:done] == known:  # the same objects: compared by identity, in nanoseconds each
                size = _measure_messages(messages[done:], size)
            else:
                size = _measure_messages(messages, (0, 0, 0))
        self._known[key] = (messages, size)
        if len(self._known) > _REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return size

    def _tools_size(self, tools: tuple[Tool, ...]) -> Size:
        known = self._tools.get(id(tools))
        if known is not None and known[0] is tools:
            return known[1]
        counted = [0, 0, 0]
        for tool in tools:
            _text(tool.name, counted)
            _text(tool.description, counted)
            _value(tool.schema, counted)
        if len(self._tools) >= _REMEMBERED_MAX:
            self._tools.clear()
        size = _make_size(counted)
        self._tools[id(tools)] = (tools, size)
        return size


class _Counted(NamedTuple):
    """The provider's count for a conversation at one time."""

    messages: tuple[Message, ...]
    system: str
    tools: tuple[Tool, ...]
    size: Size
    tokens: int


class _Learned:
    """What was learned about one model."""

    __slots__ = ("conversations", "missed", "rate")

    def __init__(self) -> None:
        self.rate = 0.0  # tokens a byte of text with spaces, a decaying maximum; 0: nothing learned yet
        self.missed = 0  # the most tokens by which an estimate was too low
        self.conversations: dict[int, _Counted] = {}


class Estimator:
    """Tokens of Requests before they are sent; `learn` from what they really took."""

    __slots__ = ("_last", "_measure", "_models", "told")

    def __init__(self) -> None:
        self.told: Callable[[str, float, int], None] | None = (
            None  # called with (model, rate, missed) after each change
        )
        self._measure = Measure()
        # The last estimate: `learn` mostly refers to it.
        self._last: tuple[str, tuple[Message, ...] | None, Size, int] = ("", None, Size(0, 0, 0), 0)
        self._models: dict[str, _Learned] = {}

    def estimate(self, model: str, request: Request) -> int:
        """Input tokens of the request, on the high side."""
        learned = self._models.get(model) or self._model(model)
        size = self._measure.size(request)
        estimated = self._estimate(learned, request, size)
        self._last = (model, request.messages, size, estimated)
        return estimated + learned.missed

    def learn(self, model: str, request: Request, usage: TokenUsage) -> None:
        """Learn that the provider counted `usage` for this request."""
        tokens = usage.total_input
        if tokens <= 0 or not request.messages:
            return
        learned = self._models.get(model) or self._model(model)
        last_model, last, size, estimated = self._last
        if last is not request.messages or last_model != model:
            size = self._measure.size(request)
            estimated = self._estimate(learned, request, size)
        before = (learned.rate, learned.missed)
        if tokens > estimated + learned.missed:
            learned.missed = tokens - estimated
        if size.wordy >= _LEARN_BYTES_LEAST and size.wordy > 10 * size.dense and not size.images:
            rate = tokens / size.wordy
            learned.rate = max(rate, 0.9 * learned.rate + 0.1 * rate)
        if self.told is not None and before != (learned.rate, learned.missed):
            self.told(model, learned.rate, learned.missed)
        conversations = learned.conversations
        key = id(request.messages[0])
        conversations.pop(key, None)
        conversations[key] = _Counted(request.messages, request.system, request.tools, size, tokens)
        if len(conversations) > _REMEMBERED_MAX:
            del conversations[next(iter(conversations))]

    def know(self, model: str, rate: float, missed: int) -> None:
        """Restore what was learned earlier, as `told` received it."""
        learned = self.get_learned(model)
        learned.rate, learned.missed = rate, missed

    def get_learned(self, model: str) -> _Learned:
        """Return what was learned about a model."""
        return self._models.get(model) or self._model(model)

    def expects(self, model: str) -> tuple[float, float, int]:
        """Return the state behind the estimates of a model: tokens a byte for a new and for a known conversation,
        missed tokens."""
        learned = self.get_learned(model)
        new = min(WORDY, learned.rate * MARGIN) if learned.rate else WORDY
        return max(new, learned.rate), max(WORDY, learned.rate), learned.missed

    def _model(self, model: str) -> _Learned:
        learned = self._models[model] = _Learned()
        return learned

    def _estimate(self, learned: _Learned, request: Request, size: Size) -> int:
        messages = request.messages
        wordy, dense, images = size
        known = learned.conversations.get(id(messages[0])) if messages else None
        if known is not None and _continues(known, request):
            wordy -= known.size.wordy
            dense -= known.size.dense
            images -= known.size.images
            marks = (len(messages) - len(known.messages)) * MESSAGE_TOKENS + known.tokens
            rate = WORDY
        else:
            marks = len(messages) * MESSAGE_TOKENS + BASE_TOKENS + (TOOLS_TOKENS if request.tools else 0)
            rate = min(WORDY, learned.rate * MARGIN) if learned.rate else WORDY
        rate = max(rate, learned.rate)
        return int(wordy * rate + dense * DENSE) + 1 + images * IMAGE_TOKENS + marks


class ConversationTokens:
    """Estimates for one conversation that only grows: each message is counted once, without comparing the others.

    The first and the last known message show whether a request continues the conversation.
    """

    __slots__ = (
        "_estimator",
        "_first",
        "_is_back",
        "_last",
        "_model",
        "_system",
        "_tokens",
        "_tools",
        "_upto",
        "estimated",
    )

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._upto = 0  # messages that the provider has counted
        self._tokens = 0  # its count for them
        self._first: Message | None = None
        self._last: Message | None = None
        self._model = self._system = ""
        self._tools: tuple[Tool, ...] = ()
        self._is_back = False  # loaded after a restart: system and tools are taken from the next request
        self.estimated = 0

    def to_data(self) -> list[Any]:
        """Return what the provider has counted: the messages, its tokens, its model."""
        return [self._upto, self._tokens, self._model]

    def load(self, data: list[Any], messages: list[Message]) -> None:
        upto, tokens, model = data
        if 0 < upto <= len(messages):
            self._upto, self._tokens, self._model = int(upto), int(tokens), str(model)
            self._first, self._last, self._is_back = messages[0], messages[upto - 1], True

    def estimate(self, model: str, request: Request) -> int:
        """Input tokens of the request, on the high side."""
        messages = request.messages
        upto = self._upto
        if self._is_back:
            self._system, self._tools, self._is_back = request.system, request.tools, False
        if (
            not 0 < upto <= len(messages)
            or messages[upto - 1] is not self._last
            or messages[0] is not self._first
            or model != self._model
            or request.system != self._system
            or request.tools is not self._tools
        ):
            self.estimated = self._estimator.estimate(model, request)
            return self.estimated
        estimator = self._estimator
        learned = estimator._models.get(model) or estimator.get_learned(model)
        wordy, dense, images = _measure_messages(messages[upto:], (0, 0, 0))
        rate = learned.rate if learned.rate > WORDY else WORDY
        marks = (len(messages) - upto) * MESSAGE_TOKENS + images * IMAGE_TOKENS + learned.missed + 1
        self.estimated = self._tokens + int(wordy * rate + dense * DENSE) + marks
        return self.estimated

    def learn(
        self, model: str, request: Request, usage: TokenUsage, later: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Learn that the provider counted `usage` for this request. `later` receives the update of the shared
        estimator, to be run when other processes may see it."""
        tokens = usage.total_input
        if tokens <= 0 or not request.messages:
            return
        if self._upto and tokens <= self.estimated:
            pass  # as estimated: nothing to learn
        elif later is not None:
            later(lambda: self._estimator.learn(model, request, usage))
        else:
            self._estimator.learn(model, request, usage)
        self._note(model, request, tokens)

    def note_usage(self, model: str, request: Request, usage: TokenUsage) -> None:
        """Note the provider's count without learning from it; a replay does, because it was learned before."""
        tokens = usage.total_input
        if tokens > 0 and request.messages:
            self._note(model, request, tokens)

    def _note(self, model: str, request: Request, tokens: int) -> None:
        messages = request.messages
        self._is_back = False
        self._upto, self._tokens = len(messages), tokens
        self._first, self._last = messages[0], messages[-1]
        self._model, self._system, self._tools = model, request.system, request.tools


def _continues(known: _Counted, request: Request) -> bool:
    if request.tools is not known.tools and request.tools != known.tools:
        return False
    if request.system != known.system or request.output_schema is not None:
        return False
    return request.messages[: len(known.messages)] == known.messages


def answer_tokens(message: Message) -> int:
    """Tokens of an answer whose provider did not count them, on the high side."""
    wordy, dense, _ = _measure_messages((message,), (0, 0, 0))
    return int(wordy * WORDY + dense * DENSE) + 1 if wordy or dense else 0


def text_tokens(text: str) -> int:
    """Tokens of a text that may be put into a prompt, on the high side; letters beyond ASCII count by their bytes."""
    plain = len(text.encode("ascii", "ignore"))
    dense = len(text.encode("utf-8", "surrogatepass")) - plain
    is_wordy = text.count(" ") + text.count("\n") >= plain // _SPACING
    return int(plain * (WORDY if is_wordy else DENSE) + dense * DENSE) + 1 if text else 0


# ---------------------------------------------------------------- counting
def _measure_messages(messages: tuple[Message, ...], before: tuple[int, int, int]) -> Size:
    wordy, dense, images = before
    for message in messages:
        content = message.content
        if type(content) is str and not message.tool_calls and not message.tool_results:  # most of them
            length = len(content)
            if length <= _SHORT and content.isascii():
                dense += length
                continue
        counted = [wordy, dense, images]
        if type(content) is str:
            _text(content, counted)
        else:
            _parts(content, counted)
        for call in message.tool_calls:
            _text(call.name, counted)
            _text(call.id, counted)
            _value(call.arguments, counted)
        for result in message.tool_results:
            _text(result.id, counted)
            _output(result.output, counted)
        wordy, dense, images = counted
    return _make_size((wordy, dense, images))


def _text(text: str, counted: list[int]) -> None:
    length = len(text)
    if not text.isascii():
        counted[1] += len(text.encode("utf-8", "surrogatepass"))
    elif length > _SHORT and text.count(" ") + text.count('"') + text.count("\n") >= length // _SPACING:
        counted[0] += length
    else:
        counted[1] += length


def _output(output: Any, counted: list[int]) -> None:
    if isinstance(output, str):
        _text(output, counted)
    elif isinstance(output, (list, tuple)) and all(isinstance(part, dict) and "type" in part for part in output):
        _parts(output, counted)
    else:
        _value(output, counted)


def _parts(parts: Any, counted: list[int]) -> None:
    for part in parts:
        if part["type"] == "image":
            counted[2] += 1
        elif part["type"] == "text":
            _text(str(part.get("text", "")), counted)
        else:
            _value(part, counted)


def _value(value: Any, counted: list[int]) -> None:
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):  # encoding the request reports the error
        text = repr(value)
    _text(text, counted)
