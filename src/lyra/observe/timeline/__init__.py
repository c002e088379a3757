"""Time travel through the journal of a process: its steps in order, and how everything stood after each of them.

    journal       where the rows come from, and which of them belong to a run
    step          one step of any run, and the words for its parts; `timeline` makes those of processes from the rows
    state         processes, budgets, mailboxes, conversations and shared values, as they stood
    timeline      start here: `RunTimeline` has pages of steps, the details of one, and `moment(number)`
    travel        a place in a run, breakpoints; two runs side by side, and where they first differ

Everything here is a fold over rows. Nothing is run, and nothing is written to a store.
"""
