"""The request of a step that calls an outside API: provider, endpoint, method, headers, parameters.

The provider is a name of the file, or the host of a whole address; the right of the step names it. Values in an
endpoint are kept apart from its text, so that `effects.http_url` can quote them on their own.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from lyra.vesper.check.infer import Typing, map_of
from lyra.vesper.check.scope import NameScope
from lyra.vesper.check.state import CheckState
from lyra.vesper.ir import Constant, ListOf, TemplateText, TypedExpression
from lyra.vesper.nodes.model import Setting, StepDeclaration
from lyra.vesper.values.types import ANY, STRING, Array, ValueType

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


class HttpLowering:
    """Lowers the calls of one node."""

    def __init__(self, state: CheckState, typing: Typing) -> None:
        self.state = state
        self.typing = typing

    def request(self, step: StepDeclaration, scope: NameScope) -> tuple[TypedExpression, list[str], ValueType]:
        provider = step.settings.get("provider")
        endpoint = step.settings.get("endpoint") or step.settings.get("url")
        name = provider.value if provider and isinstance(provider.value, str) else ""
        host = ""
        if endpoint is not None and isinstance(endpoint.value, str) and "://" in endpoint.value:
            host = urlsplit(endpoint.value.split("{")[0]).hostname or ""
        if not name and not host:
            self.state.error("missing_key", "external_api_call has no `provider`", step.path)
        method = self._method(step)
        values: dict[str, TypedExpression] = {
            "provider": Constant(type=STRING, value=name or host),
            "endpoint": self._endpoint(endpoint, scope) if endpoint else Constant(type=STRING, value=""),
            "method": Constant(type=STRING, value=method),
        }
        headers = step.settings.get("headers")
        if headers is not None:
            values["headers"] = self._value(headers, scope)
        body = step.settings.get("body")
        parameters = {key: self._value(setting, scope) for key, setting in step.parameters.items()}
        values["parameters"] = self._value(body, scope) if body is not None and not parameters else map_of(parameters)
        return map_of(values), [f"network.http_client.{name or host}"] if name or host else [], ANY

    def _endpoint(self, setting: Setting, scope: NameScope) -> TypedExpression:
        """A text, or a list in which texts of the file and values take turns: values are quoted on their own."""
        expression = self._value(setting, scope)
        if isinstance(expression, Constant):
            return expression
        parts: list[TypedExpression] = []
        for part in expression.parts if isinstance(expression, TemplateText) else (expression,):
            if isinstance(part, str):
                parts.append(Constant(type=STRING, value=part))
                continue
            if len(parts) % 2 == 0:
                parts.append(Constant(type=STRING, value=""))
            parts.append(TemplateText(type=STRING, parts=(part,)))
        return ListOf(type=Array(STRING), items=tuple(parts))

    def _method(self, step: StepDeclaration) -> str:
        setting = step.settings.get("method")
        if setting is None:
            return "POST"
        method = str(setting.value).upper()
        if method not in METHODS:
            self.state.error("unknown_word", f"`method` is one of {', '.join(METHODS)}", setting.path, value=True)
            return "POST"
        return method

    def _value(self, setting: Setting, scope: NameScope) -> TypedExpression:
        return self.typing.value(setting.value, setting.path, scope)
