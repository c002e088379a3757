"""The one durable place: journal, snapshots, blobs and the owner's lease.

`protocol` says what a Store is; `sqlite` is the default, `memory` forgets on exit, `postgres` serves many machines.
Stores are plain blocking objects used by one thread at a time: the kernel decides whether to call them on its loop
or from its writer thread. `open_store(target)` turns what a user writes (a path, a URL, `"memory"`) into one.
"""

from lyra.store.protocol import Lease, Record, Snapshot, Store, open_store

__all__ = ["Lease", "Record", "Snapshot", "Store", "open_store"]
