"""Time travel in a durable run: its effects in order, its processes as they stood at each, and forks of it.

    timeline     what the run did, in order: who, where, the outcome of it, what it cost; a run found in an open store
    reader       how the journal of a run becomes a timeline: the program is answered from the journal alone
                 (journal: its rows and effects in words; frozen_kernel: a kernel on which nothing new happens)
    player       the processes at any place of the timeline, forwards and backwards, by effect or by line
    variables    which names a place of a program sees and what they hold, expressions over them, stops at lines
    breakpoints  where to stop
    fork         the run once more with one reply changed, written and executed
    replayed_run what the program tells about the steps of its journal, for `lyra replay` and the pages of runs

Reads only, but for `fork`, which writes its own run: a run is not touched by being replayed, also while it lives.
"""
