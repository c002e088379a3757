"""Time travel through the journal of a process: its steps in order, and how everything stood after each of them.

    journal       where the rows come from, and which of them belong to a run
    step          one step, and the words for its parts; `steps` makes them from the rows: messages, calls, children,
    ends state         processes, budgets, mailboxes, conversations and shared values, as they stood
    timeline      start here: `RunTimeline` has pages of steps, the details of one, and `moment(number)`
    difference    two runs side by side, and where they first differ

Everything here is a fold over rows. Nothing is run, and nothing is written to a store.
"""
