"""Work of callers outside that is under way is counted, for all and for the task that asks."""

from __future__ import annotations

import asyncio

from lyra.kernel.base.tasks import Flight


def test_a_flight_is_counted_until_it_ends():
    ended: list[int] = []
    flight = Flight(lambda: ended.append(flight.count))
    with flight, flight:
        assert (flight.count, flight.mine) == (2, 2)
    assert (flight.count, flight.mine, ended) == (0, 0, [1, 0])


def test_a_task_counts_its_own_flights_alone():
    async def main() -> None:
        flight = Flight(lambda: None)
        may_end = asyncio.Event()

        async def other() -> None:
            with flight:
                await may_end.wait()

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        assert (flight.count, flight.mine) == (1, 0)
        may_end.set()
        await task

    asyncio.run(main())
