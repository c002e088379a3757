"""The part of the standard library that touches the outside: network, commands, time, environment,
traces. `handlers` has files, and the table of all effects.

Each is an Effect through the kernel's door, with the capability it needs for these very arguments: the Grant of the
process that asks decides, before anything happens. Commands run in the sandbox; addresses of the inside are refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.records import new_span
from lyra.core import codec
from lyra.core.effect import Effect
from lyra.core.limits import CAPABILITY_LENGTH_MAX
from lyra.core.providers import USUAL
from lyra.core.rights.capability import Capability
from lyra.core.secrets.redact import redact, redact_command
from lyra.core.trace_context import TraceSpan, enclosing_span, enter_span
from lyra.errors import CapabilityDenied, EffectFailed
from lyra.kernel.process.replay import upcoming_key
from lyra.vega.runtime.agents.plan import call_node, node_row
from lyra.vega.runtime.convert import from_python, to_python
from lyra.vega.values.values import Fault, Response, Span, fault_of, kind_of

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


_COMMAND_S: Final = 600.0
_KEYS: Final = frozenset(name for usual in USUAL.values() for name in usual.key)


def need_text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise Fault("TypeError", f"{what} is a str, not {kind_of(value)}")
    return value


# ---------------------------------------------------------------- network and commands


async def _http(job: VegaJob, method: str, url: Any, body: str | None) -> Response:
    from lyra.tools.http_guard import fetch, host_and_port

    grant, runtime = job.ctx.grant, job.world.runtime

    async def vega_http(url: str, body: str | None) -> list[Any]:
        answer = await fetch(url, grant=grant, method=method, body=None if body is None else body.encode())
        text = answer.body.decode(errors="replace")
        return list(runtime.keys.without_key([answer.status, text, dict(answer.headers)], f"the answer of {host}"))

    def about(url: str, body: str | None) -> str:
        sent = "" if body is None else f" with {len(body)} characters"
        return f"{method} {redact(url, runtime.known)}{sent} ({current_place(job)})"

    host = host_and_port(need_text(url, "a url"))
    name = f"vega.http.{method.lower()}"

    def needs(url: str, body: str | None) -> list[Capability]:
        runtime.keys.check_no_key([url, body], "the request")
        return [Capability("net.http", host)]

    effect = Effect(vega_http, name=name, needs=needs, idempotent=method == "GET", about=about, skipped=_make_response)
    status, text, headers = await job.ctx.do(effect, url, body)
    return Response(status, text, headers)


def _make_response(data: Any) -> list[Any]:
    """Return the response to a request that a person says was made: what they know of its body."""
    return [200, _text_of(data), {}]


def _text_of(data: Any) -> str:
    if data is None or type(data) is str:
        return data or ""
    import json

    return json.dumps(data, ensure_ascii=False)


def current_place(job: VegaJob) -> str:
    """Return the file and line that the program is at."""
    file, line, _ = job.fiber.place()
    return f"{file}:{line}"


async def http_get(job: VegaJob, url: str) -> Response:
    return await _http(job, "GET", url, None)


async def http_post(job: VegaJob, url: str, body: str) -> Response:
    return await _http(job, "POST", url, need_text(body, "a body"))


async def execute(job: VegaJob, command: Any) -> str:
    """`exec("npm test")`: what it writes to stdout; an error if it fails."""
    line = need_text(command, "a command").strip()
    if not line or "\0" in line or len(line) > CAPABILITY_LENGTH_MAX:
        raise Fault("ValueError", f"a command has between 1 and {CAPABILITY_LENGTH_MAX} characters")
    folder, runtime = job.world.options.folder, job.world.runtime

    async def vega_exec(line: str) -> str:
        from lyra.sandbox import Limits, Profile, Sandbox

        profile = Profile(folder, limits=Limits(wall_s=_COMMAND_S))
        result = await Sandbox().run(["/bin/bash", "-c", line], profile, apart=True)
        output = result.output.text
        if not result.ok:
            message = result.errors.text.strip() or output.strip()
            code = result.exit_code
            message = runtime.clean(message)[-2000:]
            raise EffectFailed(f"`{runtime.clean(line)}` ended with exit code {code}: {message}", exit=code)
        return str(runtime.keys.without_key(output, "the output of the command, which was run,"))

    def about(line: str) -> str:
        return f"`{redact_command(line, runtime.known)}` ({current_place(job)})"

    def needs(line: str) -> list[Capability]:
        runtime.keys.check_no_key(line, "the command")
        return [Capability("process.exec", line)]

    effect = Effect(vega_exec, name="vega.exec", needs=needs, about=about, skipped=_text_of)
    printed: str = await job.ctx.do(effect, line)
    return printed


# ---------------------------------------------------------------- time, chance, environment


def _now(job: VegaJob) -> float:
    return job.ctx.now()


def _iso(job: VegaJob) -> str:
    return datetime.fromtimestamp(job.ctx.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _random(job: VegaJob) -> float:
    return float(job.ctx.random.random())


def _random_int(job: VegaJob, low: int, high: int) -> int:
    if type(low) is not int or type(high) is not int or low >= high:
        raise Fault("ValueError", "math::random_int needs two ints, the first below the second")
    return int(job.ctx.random.randrange(low, high))


def _env(job: VegaJob, name: Any, default: Any = None) -> Any:
    value = _variable(job, name)
    return default if value is None else value


def _variable(job: VegaJob, name: Any) -> str | None:
    """Return a variable of the environment; keys of providers are hidden."""
    job.ctx.grant.check(Capability("env.read", need_text(name, "a variable's name")))
    if name in _KEYS:
        raise CapabilityDenied(f"{name} holds a key, which programs may not read", name=name)
    value: str | bool | None = job.ctx.journaled_read("env", lambda: _without_key(job, os.environ.get(name)))
    if isinstance(value, bool):
        raise CapabilityDenied(f"{name} holds a key, which programs may not read", name=name)
    return value


def _without_key(job: VegaJob, value: str | None) -> str | bool | None:
    """Return the value as it is journaled: False represents one that holds a key."""
    return False if job.world.runtime.keys.prepared.holds(value) else value


def _arguments(job: VegaJob) -> list[str]:
    return list(job.world.options.args)


# ---------------------------------------------------------------- traces


def _span(job: VegaJob, name: Any) -> Span:
    """From now on what this process does belongs to the span, until it ends."""
    kernel, outer = job.world.kernel, enclosing_span()
    trace_id = outer.trace_id if outer is not None else kernel.entropy.hex(128)
    inner = TraceSpan(trace_id, new_span(kernel), outer.sampled if outer is not None else None)
    began = (kernel.clock.monotonic(), kernel.clock.now())
    job.state.spans.append((inner, outer, str(name), began, {}))
    enter_span(inner)
    return Span(inner.span_id, str(name))


def _span_end(job: VegaJob, span: Span) -> None:
    """End a span, and those inside it that are still open."""
    spans = job.state.spans
    index = next((index for index, (inner, *_) in enumerate(spans) if inner.span_id == span.id), None)
    if index is None:
        return
    enter_span(spans[index][1])
    kernel = job.world.kernel
    for inner, outer, name, (began_s, began_at), attributes in reversed(spans[index:]):
        record = {
            "trace_id": inner.trace_id,
            "span_id": inner.span_id,
            "name": name,
            "latency_ms": int((kernel.clock.monotonic() - began_s) * 1000),
            "attributes": attributes,
            "parent_span": (outer.span_id or None) if outer is not None else None,
            **({} if inner.sampled is None else {"sampled": inner.sampled}),
        }
        _tell(job, "trace.span", record, began=began_at)
    del spans[index:]


def _tell(job: VegaJob, kind: str, record: dict[str, Any], **kept: Any) -> None:
    """Publish a fact of the program's own trace; the journal of a durable run keeps it with `kept` for `vega trace`.

    A replay tells nothing again. What was told behind the last effect of a life is told again by the next: the row
    has its place in the program, by which a reader knows the two for one.
    """
    journal, process = job.world.kernel.journal, job.ctx.own_process
    if journal is None:
        job.world.kernel.publish(job.ctx.pid, kind, record)
    elif not job.ctx.replaying:
        key = str(upcoming_key(process))
        row = job.world.runtime.clean_data({**record, **kept, "place": [key, job.state.count_trace_entry(key)]})
        journal.write(job.ctx.pid, kind, codec.encode(row))


def _event(job: VegaJob, text: Any) -> None:
    inside = enclosing_span()
    data = {"text": str(text), "span_id": inside.span_id if inside is not None else ""}
    _tell(job, "trace.event", data)


def _set_attribute(job: VegaJob, key: Any, value: Any) -> None:
    """Set an attribute of the innermost open span; outside of any span it is dropped."""
    if job.has_state and job.state.spans:
        job.state.spans[-1][4][str(key)] = to_python(value)


# ---------------------------------------------------------------- the host


def _print(job: VegaJob, text: str) -> Any:
    if not job.world.is_durable:
        job.world.options.write(text)
        return None
    text = job.world.runtime.clean(text)
    record = job.world.record
    if record is None:  # a kernel with a journal, but no durable run: printing is an effect
        return _print_line(job, text)
    number = job.state.printed
    job.state.printed = number + 1
    record.print(job.ctx.own_process.pid, number, text)
    return None


async def _print_line(job: VegaJob, text: str) -> None:
    write = job.world.options.write

    async def vega_print(text: str) -> None:
        write(text)

    await job.ctx.do(Effect(vega_print, name="vega.print", idempotent=True), text)


async def host_function(job: VegaJob, name: str, *arguments: Any) -> Any:
    """Return a function given by the caller of the run, sync or async, as an effect; or an imported node."""
    function = job.world.function(name)
    row = node_row(job.world, name) if function is None else None
    if row is not None:
        return await call_node(job.world, job.ctx, row, arguments, lambda: current_place(job))
    if function is None:
        raise CapabilityDenied(f"this host has no function {name}", name=name)

    async def vega_host(*given: Any) -> Any:
        value = function(*given)
        return job.world.runtime.keys.without_key(await value if isawaitable(value) else value, f"what {name} gave")

    def about(*_: Any) -> str:
        return f"{name} ({current_place(job)})"

    try:
        given = [to_python(argument) for argument in arguments]
        return from_python(await job.ctx.do(Effect(vega_host, name=f"vega.host.{name}", about=about), *given))
    except Fault:
        raise
    except Exception as error:  # whatever a host's function raises, a program may catch
        fault = fault_of(error)
        raise Fault(fault.name, fault.text) from error


def _mock(job: VegaJob, agent: str, replies: list[Any]) -> None:
    job.world.mocks[agent] = [(pattern, reply) for pattern, reply in replies]


LIBRARY: Final[dict[str, Callable[..., Any]]] = {
    "print": _print,
    "http::get": http_get,
    "http::post": http_post,
    "exec": execute,
    "time::now": _now,
    "time::iso": _iso,
    "math::random": _random,
    "math::random_int": _random_int,
    "env::get": _env,
    "env::has": lambda job, name: _variable(job, name) is not None,
    "env::args": _arguments,
    "trace::span": _span,
    "trace::event": _event,
    "trace::set_attribute": _set_attribute,
    "span_end": _span_end,
    "test::mock": _mock,
}
