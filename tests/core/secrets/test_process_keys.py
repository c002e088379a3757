"""Keys that one part knows are masked in the errors of another."""

from __future__ import annotations

import asyncio
import gc

import pytest

from lyra import Agent
from lyra.core.secrets import process_keys as process_keys_module
from lyra.core.secrets.process_keys import add_key_source, mask_process_keys, process_keys
from lyra.errors import EffectFailed, ToolError
from lyra.kernel import Kernel
from lyra.kernel.journal.rows import error_from_row, error_to_row, text_of, without_keys

KEY = "plum.orchard.7731.lantern.echo.ferry"
OTHER = "amber.willow.4410.harbour.kite.moss"


class Owner:
    keys = (KEY,)


@pytest.fixture
def owner() -> Owner:
    owner = Owner()
    add_key_source(owner, lambda living: living.keys)
    return owner


def test_keys_are_known_as_long_as_their_owner_lives() -> None:
    owner = Owner()
    add_key_source(owner, lambda living: living.keys)
    assert KEY in process_keys()
    assert KEY not in mask_process_keys(f"login with {KEY} failed")
    del owner
    gc.collect()
    assert KEY not in process_keys()
    assert mask_process_keys(KEY) == KEY


def test_the_row_of_an_error_has_no_known_key(owner: Owner) -> None:
    """Message, arguments, attributes and fields; what a program catches is what the row says."""
    raised = ValueError(f"refused {KEY}")
    raised.detail = KEY  # type: ignore[attr-defined]
    for error in (raised, ToolError(f"refused {KEY}", header=KEY)):
        row = error_to_row(error)
        assert KEY not in str(row)
        assert KEY not in str(error_from_row(row))
        assert KEY not in str(without_keys(error))
    assert KEY not in text_of(raised)
    harmless = ToolError("refused")
    assert without_keys(harmless) is harmless


@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_stage_and_a_service_that_fail_do_not_tell_a_known_key(owner: Owner, store: str, tmp_path) -> None:
    """The error of a stage, of a dispatch and every event of the kernel: the key is in none of them."""
    told: list[str] = []

    async def broken(_work: object) -> None:
        raise RuntimeError(f"login with {KEY} failed")

    async def refusing(_work: object) -> None:
        raise ToolError(f"{KEY} was refused")

    async def main() -> None:
        async with Kernel("memory" if store == "memory" else str(tmp_path / "run.db")) as kernel:
            kernel.on_event(lambda event: told.append(str(event.data)))
            for name, function in (("broken", broken), ("refusing", refusing)):
                kernel.register_agent(name, function)
                kernel.register_service({"name": name, "service_type": "worker"})
                kernel.register_handler(name, function)
                pipeline = {"name": name, "agents": [{"name": name}]}
                told.extend([str(event.envelope) async for event in kernel.execute_pipeline(pipeline, "x")])
                with pytest.raises((EffectFailed, ToolError)) as failed:
                    await kernel.dispatch(name, {})
                told.append(str(failed.value))

    asyncio.run(main())
    assert any("failed" in text for text in told)
    assert not [text for text in told if KEY in text]


def test_a_source_that_fails_concerns_no_other_kernel(tmp_path) -> None:
    """A key that cannot be read any more, such as of a variable that is not set, leaves errors elsewhere as they are;
    the keys that its owner gave before are still masked."""
    owner = Owner()
    told = [(KEY,)]
    add_key_source(owner, lambda _living: told.pop())
    assert KEY in process_keys()  # from now on the source raises IndexError

    async def fails(_ctx) -> None:
        raise ValueError(f"refused {KEY}")

    async def main() -> None:
        async with Kernel(tmp_path / "k.db") as kernel:
            ended = await asyncio.wait_for(kernel.spawn(fails).wait(), 30)
            assert isinstance(ended.error, ValueError)
            await kernel.durable()

    asyncio.run(main())
    assert KEY not in mask_process_keys(f"login with {KEY} failed")
    assert KEY.encode() not in (tmp_path / "k.db").read_bytes()


def test_an_owner_may_end_its_source() -> None:
    owner = Owner()
    end = add_key_source(owner, lambda _living: (OTHER,))
    assert OTHER in process_keys()
    end()
    end()
    assert OTHER not in process_keys()


def test_a_kernel_that_is_closed_leaves_no_source() -> None:
    """Otherwise each error would ask all kernels that a long-lived program has ever had."""

    async def main() -> None:
        async with Kernel(programs=[Agent("a", model="sim/echo")]) as kernel:
            await kernel.spawn(Agent("a", model="sim/echo")).send("hi")
            assert len(process_keys_module._sources) == before + 1

    before = len(process_keys_module._sources)
    asyncio.run(main())
    assert len(process_keys_module._sources) == before
