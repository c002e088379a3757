"""The time of an execution: acts count for its deadline, not for the clock of its path."""

from __future__ import annotations

from lyra.vesper.effects.door import ExecutionTime


def test_the_clock_of_a_path_stands_still_in_acts():
    now = [100.0]
    time = ExecutionTime(10.0, lambda: now[0])
    began = time()
    now[0] += 2.0  # work of the path
    with time.act():
        now[0] += 3.0
        with time.act():  # two at once count once
            now[0] += 1.0
        assert time() - began == 2.0
    assert time() - began == 2.0
    assert time.left_s == 4.0
    now[0] += 1.0
    assert time() - began == 3.0
