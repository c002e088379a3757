"""The journal: typed rows, committed in batches, and the history that is read back from them.

`rows` defines every kind of row, `journal` writes, `history` folds rows into the state of each process, `snapshots`
writes such a fold down, `lease` keeps a second kernel off the store. Rows are a durable format: versions to come must
read them.
"""
