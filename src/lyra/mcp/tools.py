"""A server's tools as Tools: the same schema, checked arguments, untrusted output; and its resources and prompts.

Every such Tool is `guarded` (a call needs a rule or an answer) and `untrusted` (its output marks the session as
tainted). None counts as idempotent, whatever the server declares. It holds no connection: a call uses the current one,
and fails at once if there is none. Listings are read page by page, and results turned into text, images or plain data,
up to a limit each.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.agents.declaration.output import Image
from lyra.core.checking.check import is_nested_deeper
from lyra.core.checking.schema import checkable_part, mismatch
from lyra.core.limits import VALUE_DEPTH_MAX
from lyra.core.rights.capability import Capability
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import without_invisible, without_invisible_data
from lyra.core.tool import Tool
from lyra.errors import ConfigError, ToolError
from lyra.mcp.approvals import pin_of

if TYPE_CHECKING:
    from mcp import Client

    from lyra.mcp.connection import Connection


# ---------------------------------------------------------------- schemas
SCHEMA_BYTES_MAX: Final = 256 * 1024
_REPEATED: Final = ("enum", "const", "required")  # a call has to give these texts as they are


def strip_invisible(schema: Any) -> Any:
    """Return the schema as a model sees it: no text in it has invisible characters, but for those that a call has to
    repeat."""
    if isinstance(schema, list):
        return [strip_invisible(item) for item in schema]
    if isinstance(schema, str):
        return without_invisible(schema)
    if not isinstance(schema, dict):
        return schema
    return {key: value if key in _REPEATED else strip_invisible(value) for key, value in schema.items()}


def _walk_repeated(schema: Any) -> Iterator[Any]:
    """Yield the names of a schema, and its values that a call has to repeat."""
    for item in schema if isinstance(schema, list) else ():
        yield from _walk_repeated(item)
    for key, value in schema.items() if isinstance(schema, dict) else ():
        yield key
        if key in _REPEATED:
            yield value
        else:
            yield from _walk_repeated(value)


def problem(schema: Any) -> str | None:
    """Return why this cannot be the schema of a tool's arguments; None if it can."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return "its schema does not describe an object"
    if is_nested_deeper(schema, VALUE_DEPTH_MAX - 1):
        return "its schema is nested too deeply"
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError):
        return "its schema is no JSON"
    if any(without_invisible_data(value) != value for value in _walk_repeated(schema)):
        return "its schema has a name or a value with invisible characters"
    return f"its schema has more than {SCHEMA_BYTES_MAX >> 10} KiB" if size > SCHEMA_BYTES_MAX else None


def checkable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a schema that can be checked; the rest accepts any value."""
    return checkable_part(schema, drops_mistakes=True) or {"type": "object"}


OUTPUT_CHARS_MAX: Final = 100_000
_ERROR_CHARS_MAX: Final = 4_000
_IMAGES_MAX: Final = 8
_SEEN: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def output_of(result: Any, tool: str) -> Any:
    """Return the output of one call; a ToolError if the server reports a failure."""
    parts = _parts(result.content)
    if result.is_error:
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        raise ToolError(
            _cut(text, _ERROR_CHARS_MAX) or "the tool failed and did not say why", tool=tool, reason="exec_failed"
        )
    if not parts and result.structured_content is not None:
        # Plain data unchanged if it is small enough, else its JSON cut to the limit.
        value = result.structured_content
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError):
            raise ToolError("the result is nested too deeply", reason="io_error") from None
        return without_invisible_data(value) if len(text) <= OUTPUT_CHARS_MAX else _cut(text, OUTPUT_CHARS_MAX)
    return _join_parts(parts)


def resource_of(result: Any) -> Any:
    """Return the content of a resource."""
    return _join_parts([_read_resource(content) for content in result.contents])


def prompt_of(result: Any) -> str:
    """Return a prompt as text."""
    messages = [f"{message.role}: {_join_parts(_parts([message.content]))}" for message in result.messages]
    return _cut("\n\n".join(messages), OUTPUT_CHARS_MAX)


def without_secrets(output: Any, secrets: list[str]) -> Any:
    """Return the output with the secrets of the server redacted."""
    if not secrets:
        return output
    if isinstance(output, str):
        return redact(output, secrets, forms=False)
    if isinstance(output, dict):
        return {without_secrets(key, secrets): without_secrets(value, secrets) for key, value in output.items()}
    return [without_secrets(item, secrets) for item in output] if isinstance(output, list) else output


def _parts(content: Any) -> list[str | Image]:
    return [_READERS.get(part.type, _unknown)(part) for part in content]


def _join_parts(parts: list[str | Image]) -> Any:
    """One text, or a list if there are images; cut to the limit."""
    images = [part for part in parts if isinstance(part, Image)]
    if not images:
        return _cut("\n".join(str(part) for part in parts), OUTPUT_CHARS_MAX)
    left, shown, joined = OUTPUT_CHARS_MAX, 0, []
    for part in parts:
        if isinstance(part, Image):
            shown += 1
            joined.append(part if shown <= _IMAGES_MAX else "[one more image]")
        else:
            text = _cut(part, max(left, 0))
            left -= len(text)
            joined.append(text)
    return joined


def _cut(text: str, most: int) -> str:
    """Return the text without invisible characters, cut to `most`."""
    return without_invisible(_shorten(text, most))


def _shorten(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[len(text) - half :]}"


# ---------------------------------------------------------------- one reader a kind of content
def _text(part: Any) -> str:
    return str(part.text)


def _image(part: Any) -> str | Image:
    return _picture(part.data, part.mime_type)


def _audio(part: Any) -> str:
    return f"[{_strip_media_parameters(part.mime_type)}, {len(part.data)} characters of base64]"


def _link(part: Any) -> str:
    return f"[resource {part.uri}{f': {part.name}' if part.name else ''}]"


def _read_embedded(part: Any) -> str | Image:
    return _read_resource(part.resource)


def _read_resource(resource: Any) -> str | Image:
    text = getattr(resource, "text", None)
    if text is not None:
        return str(text)
    return _picture(resource.blob, resource.mime_type or "", what=f"resource {resource.uri}")


def _picture(data: str, kind: str, what: str = "image") -> str | Image:
    kind = _strip_media_parameters(kind)
    if kind in _SEEN:
        try:
            return Image.from_bytes(base64.b64decode(data, validate=True), kind)
        except (ConfigError, ValueError):  # not an image, or not base64
            return f"[an {kind} that cannot be read]"
    return f"[{what}: {kind or 'bytes'}, {len(data)} characters of base64]"


def _strip_media_parameters(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()[:80]


def _unknown(part: Any) -> str:
    return f"[{str(part.type)[:40]}]"


_READERS: Final = {"text": _text, "image": _image, "audio": _audio, "resource_link": _link, "resource": _read_embedded}


DESCRIPTION_CHARS_MAX: Final = 4_000


class Offered(NamedTuple):
    """A tool as a server offers it."""

    name: str
    description: str
    schema: dict[str, Any]
    output: dict[str, Any] | None = None

    @property
    def pin(self) -> str:
        """The hash of description and schema, before invisible characters are removed."""
        return pin_of(self.description, self.schema)

    @property
    def shown(self) -> str:
        """The description without invisible characters, cut to the limit."""
        text = without_invisible(self.description).strip()
        return text if len(text) <= DESCRIPTION_CHARS_MAX else f"{text[:DESCRIPTION_CHARS_MAX]}…"


def tool_of(connection: Connection, offered: Offered, name: str, *, deferred: bool) -> Tool:
    return Tool(
        name=name,
        description=f"[MCP server {connection.settings.name}] {offered.shown}",
        schema=strip_invisible(offered.schema),
        needs=(Capability.of(f"tool.use:{name}"),),
        run=_Call(connection, offered, name),
        untrusted=True,
        guarded=True,
        deferred=deferred,
        foreign=True,
        confined=connection.settings.confined,
    )


class _Call:
    """The function of the tool."""

    is_async = True
    takes: Final = frozenset[str]()

    def __init__(self, connection: Connection, offered: Offered, name: str) -> None:
        self._connection = connection
        self._offered = offered
        self._name = name
        self._schema: Mapping[str, Any] = checkable(offered.schema)

    async def __call__(self, /, **arguments: Any) -> Any:
        wrong = mismatch(arguments, self._schema)
        if wrong is not None:
            raise ToolError(f"bad arguments for {self._name}: {wrong}", tool=self._name, reason="invalid_arguments")
        output = output_of(await self._connection.call(self._offered, arguments), self._name)
        return without_secrets(output, self._connection.settings.secrets())


# ---------------------------------------------------------------- listing
_PAGES_MAX: Final = 100
_TOOLS_MAX: Final = 500
_ENTRIES_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 200
_LINE_CHARS_MAX: Final = 300


class ToolListing(NamedTuple):
    """The tools that can be used, and why others cannot."""

    offered: dict[str, Offered]
    skipped: tuple[str, ...] = ()


async def list_tools(client: Client) -> ToolListing:
    if client.server_capabilities.tools is None:
        return ToolListing({})
    offered: dict[str, Offered] = {}
    skipped: list[str] = []
    async for tool in _entries(client.list_tools, "tools"):
        wrong = _wrong(tool, offered)
        if wrong is None:
            offered[tool.name] = Offered(tool.name, tool.description or "", tool.input_schema, tool.output_schema)
        elif len(skipped) < _TOOLS_MAX:
            skipped.append(f"{without_invisible(tool.name[:_NAME_CHARS_MAX])}: {wrong}")
    return ToolListing(offered, tuple(skipped))


def _wrong(tool: Any, offered: dict[str, Offered]) -> str | None:
    if not tool.name or len(tool.name) > _NAME_CHARS_MAX:
        return "it has no usable name"
    if tool.name in offered:
        return "there is another of this name"
    if len(offered) >= _TOOLS_MAX:
        return f"a server may have {_TOOLS_MAX} tools"
    return problem(tool.input_schema)


async def list_resources(client: Client) -> list[dict[str, str]]:
    if client.server_capabilities.resources is None:
        return []
    resources = [
        {"uri": without_invisible(str(entry.uri)), "name": _short(entry.name), "description": _short(entry.description)}
        async for entry in _entries(client.list_resources, "resources")
    ]
    templates = [
        {
            "uri_template": without_invisible(entry.uri_template),
            "name": _short(entry.name),
            "description": _short(entry.description),
        }
        async for entry in _entries(client.list_resource_templates, "resource_templates")
    ]
    return [*resources, *templates]


async def list_prompts(client: Client) -> list[dict[str, Any]]:
    if client.server_capabilities.prompts is None:
        return []
    return [
        {
            "name": _short(entry.name),
            "description": _short(entry.description),
            "arguments": [
                {"name": _short(argument.name), "required": bool(argument.required)}
                for argument in entry.arguments or ()
            ],
        }
        async for entry in _entries(client.list_prompts, "prompts")
    ]


async def _entries(ask: Any, field: str) -> AsyncIterator[Any]:
    """Yield the entries of all pages, up to a limit on pages and entries."""
    cursor: str | None = None
    given = 0
    for _ in range(_PAGES_MAX):
        page = await ask(cursor=cursor, cache_mode="refresh")
        for entry in getattr(page, field):
            given += 1
            if given > _ENTRIES_MAX:
                return
            yield entry
        cursor = page.next_cursor
        if cursor is None:
            return


def _short(text: str | None) -> str:
    return without_invisible((text or "")[:_LINE_CHARS_MAX])
