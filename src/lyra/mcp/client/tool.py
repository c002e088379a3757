"""A server's tool as a Tool: the same schema, checked arguments, untrusted output.

Every such Tool is `guarded` (a call needs a rule or an answer) and `untrusted` (its output marks the session as
tainted). None counts as idempotent, whatever the server declares. It holds no connection: a call uses the current one,
and fails at once if there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.checking.schema import mismatch
from lyra.core.rights.capability import Capability
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.mcp.client.approvals import pin_of
from lyra.mcp.client.results import output_of, without_secrets
from lyra.mcp.client.schema import checkable, shown

if TYPE_CHECKING:
    from lyra.mcp.client.connection import Connection


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
        schema=shown(offered.schema),
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
