"""Settings: who I am, how the pages look, who else may log in, the configuration in force, and the doctor.

Configuration, tokens and doctor are about the machine: operators and viewers see them, users do not. No secret is
shown: values that hold one are masked where the configuration is read, and tokens are kept as hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lyra._version import __version__
from lyra.config import Config, show_value
from lyra.kernel.base.tasks import BlockingCalls
from lyra.server.dashboard.html import Child, Html, TableRow, table, tag
from lyra.server.dashboard.layout import link, page
from lyra.server.dashboard.words import duration, empty, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.identity import ROLES
from lyra.server.machine_checks import Finding, machine_findings

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts


_KEPT_S: Final = 60.0  # the doctor starts programs: pages that ask again get the findings of before
_STATES: Final = {"ok": "ok", "missing": "unknown", "problem": "failed"}
_THEMES: Final = (("", "As the system"), ("light", "Light"), ("dark", "Dark"))


class SettingsQuery(RequestQuery):
    """`doctor` runs the checks."""

    doctor: bool = False


class Findings(NamedTuple):
    """What the doctor found, and when."""

    rows: tuple[Finding, ...]
    found_s: float


class Doctor:
    """Runs the checks in a thread, at most once a minute."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._threads = BlockingCalls("lyra-doctor")
        self._findings: Findings | None = None
        self._kernel.parts["server.doctor"] = self

    async def look(self) -> Findings:
        now_s = self._kernel.clock.monotonic()
        if self._findings is None or now_s - self._findings.found_s > _KEPT_S:
            rows = await self._threads.call(_findings, self._kernel.config)
            self._findings = Findings(rows, now_s)
        return self._findings

    async def close(self) -> None:
        """Called with the kernel."""
        self._threads.close()


def _findings(config: Config | None) -> tuple[Finding, ...]:
    return tuple(machine_findings(config))


async def _settings(call: HttpCall) -> RawAnswer:
    parts: list[Child] = [_me(call), _theme()]
    if call.caller.is_operator:
        parts += [_tokens(call), await _doctor(call), _config(call)]
    return page(call, "Settings", *parts, scripts=("theme_choice.js",))


def _me(call: HttpCall) -> Html:
    caller = call.caller
    facts: list[tuple[str, Child]] = [
        ("Name", caller.name),
        ("Role", f"{caller.role}: {ROLES.get(caller.role, 'changes nothing')}"),
        ("Lyra", __version__),
        ("Up for", duration(call.kernel.get_system_status().uptime_seconds)),
    ]
    leave = tag("button", "Log out", type="submit")
    field = tag("input", type="hidden", name="form_token", value=call.form_token)
    return tag(
        "section",
        tag("h2", "You"),
        tag("dl", [[tag("dt", word), tag("dd", value)] for word, value in facts], class_="facts"),
        tag("form", field, leave, method="post", action=link(call, "logout")) if call.form_token else None,
    )


def _theme() -> Html:
    """Return the choice of a theme, which this browser keeps; without a script the system's theme holds."""
    choices = [
        tag(
            "label",
            tag("input", type="radio", name="theme", value=value, checked=value == ""),
            f" {label}",
            class_="choice",
        )
        for value, label in _THEMES
    ]
    return tag(
        "section",
        tag("h2", "Look"),
        tag("div", choices, class_="bar", id="theme", role="radiogroup", aria_label="Theme"),
    )


def _tokens(call: HttpCall) -> Html:
    tokens = call.logins.tokens
    if tokens is None:
        return tag("section", tag("h2", "Who may log in"), tag("p", "The application knows its users."))
    rows = [
        TableRow(f"{index}", (holder.person or "(no name)", holder.role, ROLES[holder.role]))
        for index, holder in enumerate(tokens.holders())
    ]
    line = tag("code", "TOKEN [USER] [role=user|operator|viewer]")
    note = ["To let another person in, add a line to the token file: ", line, "."]
    return tag(
        "section",
        tag("h2", "Who may log in"),
        table("Tokens", ("Person", "Role", "May"), rows),
        tag("p", note, class_="note"),
    )


async def _doctor(call: HttpCall) -> Html:
    if not call.query.doctor:
        run = tag("a", "Run the checks", href=link(call, "settings", query={"doctor": "true"}), class_="button")
        words = tag("p", "Tries what works on this machine: extras, stores, sandbox, clock.", class_="note")
        return tag("section", tag("h2", "Doctor"), words, run, id="doctor")
    findings = await call.parts.get_shared(Doctor).look()
    rows = [
        TableRow(row.name, (row.name, state(_STATES[row.state], row.state), row.detail, row.how))
        for row in findings.rows
    ]
    return tag(
        "section",
        tag("h2", "Doctor"),
        table("Checks", ("Check", "State", "Detail", "How to get it"), rows),
        id="doctor",
    )


def _config(call: HttpCall) -> Html:
    config = call.kernel.config
    if config is None:
        what = (
            "This server was started without a configuration. One that is started by this command lists its settings."
        )
        content = empty(what, "lyra serve")
    else:
        rows = [
            TableRow(row.name, (tag("code", row.name), show_value(row.value), row.origin.kind, row.origin.place or ""))
            for row in config.rows()
        ]
        content = table("Settings in force", ("Key", "Value", "From", "Place"), rows)
    return tag("section", tag("h2", "Configuration"), content)


ENDPOINTS: Final = (
    Endpoint("pages.settings", "GET", "/settings", "Settings and doctor", _settings, query=SettingsQuery),
)
