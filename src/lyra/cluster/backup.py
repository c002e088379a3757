"""A copy of a whole cluster in one file, and the way back.

A copy is consistent over all shards and the journals of Vega runs beside them: it is read in one transaction that sees
one moment of the database, so a post is with its sender, with its receiver or with both, never lost between them. Rows
are copied as they stand, with their checksums, signatures and identities. The file ends with a hash of all of it, and
is read to its end before anything is restored from it.

Restoring writes all of them and their key in one transaction, reads them back and compares them. No shard has an owner
afterwards, so that the next one begins a new generation: what calls the lost future had made is not taken for the
restored ones'. The secret of the cluster and its hosts are not in the file: a restored cluster has a secret of its
own. The key that signs the stores is in it, since they could not be checked without.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from lyra.cluster.directory import PostgresDirectory
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, Conflict, Corrupt, StoreError
from lyra.store import KeyedStore
from lyra.store.migrations import LATEST, lease_crc
from lyra.store.moving import TABLES, Ask, Fingerprint, Row, make_insert, read_pages
from lyra.store.postgres import PostgresStore, connect, describe_url, first_line, split_schema
from lyra.store.postgres_space import RUN_SCHEMA
from lyra.store.standing import remember, vouch

_MAGIC: Final = b"lyra cluster backup 1\n"
_FRAME_BYTES_MAX: Final = 1 << 31
_DIGEST_BYTES: Final = 32

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode


class Copied(NamedTuple):
    """What was copied: how many shards with how many rows, and the time of the database then."""

    shards: int
    rows: int
    at: float


def back_up(url: str, path: Path, tell: Callable[[int], object] = lambda _: None) -> Copied:
    """Copy the cluster in a database to a new file, which is complete or not there."""
    with closing(PostgresDirectory(url, make=False)) as directory:
        view, lease_s, key = directory.view(), directory.lease_s, directory.key
    if path.exists():
        raise ConfigError(f"{path} exists already", hint="name a new file, or a folder", key="FILE")
    part = path.with_name(f"{path.name}.part")
    count = 0
    try:
        with _create(part) as file, _transaction(url, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as (ask, _):
            writer = _FrameWriter(file)
            copied_at = float(ask("SELECT extract(epoch FROM clock_timestamp())", ())[0][0])
            names = [*view.shards, *_find_runs(ask, directory.schema)]
            forms = {name: _find_form(ask, f"{directory.schema}_{name}") for name in names}
            writer.put({"at": copied_at, "lease_s": lease_s, "shards": list(view.shards), "key": key.reveal()})
            for shard, form in forms.items():
                seen = Fingerprint()
                if form:
                    _enter(ask, f"{directory.schema}_{shard}")
                    epoch = int(ask("SELECT epoch FROM lease", ())[0][0])
                    writer.put({"shard": shard, "form": form, "epoch": epoch})
                    for table, rows in read_pages(ask):
                        seen.add(table, rows)
                        writer.put({"table": table, "rows": rows})
                        tell(count + seen.rows)
                    writer.put({"end": shard, "fingerprint": seen.text()})
                count += seen.rows
            writer.finish()
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return Copied(len(view.shards), count, copied_at)


def restore(url: str, path: Path, tell: Callable[[int], object] = lambda _: None) -> Copied:
    """Make the cluster of a file in a database that has none; see the module."""
    head = _check_file(path)
    names = [str(name) for name in head["shards"]]
    with closing(PostgresDirectory(url, shards=len(names), lease_s=float(head["lease_s"]))) as directory:
        if directory.view().alive():
            raise Conflict(f"hosts of the cluster in {directory.location} are running", hint="stop them first")
        forms = {str(frame["shard"]): int(frame["form"]) for frame in _read_frames(path) if "shard" in frame}
        for shard in forms:
            PostgresStore(directory.url_of(shard)).close()  # makes its tables
        with _transaction(url, "BEGIN") as (ask, insert):
            count = _write_shards(ask, insert, _read_frames(path), directory.schema, tell)
            _enter(ask, directory.schema)
            ask("UPDATE cluster SET key = ? WHERE id = 1", (str(head["key"]),))
        directory.key = Secret(str(head["key"]))
        for shard, form in forms.items():
            _check_shard(directory.store_of(shard))
            if shard in names:
                directory.note(shard, "", form)
    return Copied(len(names), count, float(head["at"]))


def _write_shards(
    ask: Ask,
    insert: Callable[[str, Sequence[Row]], None],
    frames: Iterator[dict[str, Any]],
    schema: str,
    tell: Callable[[int], object],
) -> int:
    count = 0
    for frame in frames:
        if "shard" in frame:
            _enter(ask, f"{schema}_{frame['shard']}")
            _take_empty(ask, str(frame["shard"]), int(frame["epoch"]))
        elif "table" in frame:
            insert(make_insert(str(frame["table"])), frame["rows"])
            count += len(frame["rows"])
            tell(count)
        elif "end" in frame:
            seen = Fingerprint()
            for table, rows in read_pages(ask):
                seen.add(table, rows)
            if seen.text() != frame["fingerprint"]:
                raise Corrupt(f"what was written to shard {frame['end']} is not what is in the file")
    return count


def _take_empty(ask: Ask, shard: str, epoch: int) -> None:
    """Lock an empty shard without an owner, and empty its tables; Conflict for any other."""
    ((held, expires_at),) = ask("SELECT epoch, expires_at FROM lease FOR UPDATE", ())
    ((rows,),) = ask("SELECT (SELECT count(*) FROM journal) + (SELECT count(*) FROM snapshots)", ())
    ((now,),) = ask("SELECT extract(epoch FROM clock_timestamp())", ())
    if rows or expires_at > now:
        raise Conflict(
            f"shard {shard} of the cluster here is in use", hint="restore into a schema that does not exist yet"
        )
    for table in TABLES:
        ask(f"DELETE FROM {table}", ())  # noqa: S608 - our own names
    newest = max(epoch, held) + 1
    values = ("", newest, 0.0, lease_crc("", newest, 0.0))
    ask("UPDATE lease SET owner = ?, epoch = ?, expires_at = ?, crc = ? WHERE id = 1", values)


def _check_shard(target: KeyedStore) -> None:
    """Check a restored shard, with its signatures."""
    with closing(PostgresStore(target.url)) as store:
        store.own_signer = target.signer
        key = store.get_signing_key()
        if key:
            remember(store.location, store.file_id(), key)
        vouch(store)
        faults = store.check()
        if faults:
            raise Corrupt(f"{store.location} is restored, and was not sound: {faults[0]}")


# ---------------------------------------------------------------- the database


def _find_runs(ask: Ask, schema: str) -> list[str]:
    """Return the names of the journals of Vega runs beside the shards."""
    pattern = f"^{schema}_({RUN_SCHEMA})$"
    names = "SELECT substring(nspname FROM ?) AS run FROM pg_namespace WHERE nspname ~ ? ORDER BY run"
    return [str(run) for (run,) in ask(names, (pattern, pattern))]


def _find_form(ask: Ask, schema: str) -> int:
    """Return the form of the store in a schema; 0 where there is none."""
    if ask("SELECT to_regclass(?)::text", (f"{schema}.migrations",)) == [(None,)]:
        return 0
    form = int(ask(f"SELECT max(number) FROM {schema}.migrations", ())[0][0])  # noqa: S608 - a checked name
    if form != LATEST:
        raise StoreError(f"the store in {schema} has form {form}, and this version copies form {LATEST}")
    return form


def _enter(ask: Ask, schema: str) -> None:
    ask("SELECT set_config('search_path', ?, true)", (schema,))


@contextmanager
def _transaction(url: str, begin: str) -> Iterator[tuple[Ask, Callable[[str, Sequence[Row]], None]]]:
    """Provide what asks and what inserts, in one transaction on a connection of its own."""
    import psycopg

    plain, named = split_schema(url)
    location, password = describe_url(plain, named or "lyra")
    hidden = Secret(plain)
    try:
        with closing(connect(hidden.reveal(), location, password)) as connection:
            connection.execute(begin.encode())

            def ask(statement: str, values: Sequence[Any]) -> list[Row]:
                cursor = connection.execute(statement.replace("?", "%s").encode(), values)
                return list(cursor.fetchall()) if cursor.description is not None else []

            def insert(statement: str, rows: Sequence[Row]) -> None:
                with connection.cursor() as cursor:
                    cursor.executemany(statement.replace("?", "%s").encode(), rows)

            yield ask, insert
            connection.execute(b"COMMIT")
    except psycopg.Error as error:
        raise StoreError(f"the cluster in {location} cannot be copied: {first_line(error, password)}") from None


# ---------------------------------------------------------------- the file


@contextmanager
def _create(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that only its user may read; it is on the disk when the block ends."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


class _FrameWriter:
    """Writes frames, each with its length before it, and a hash of all of them at the end."""

    def __init__(self, file: IO[bytes]) -> None:
        file.write(_MAGIC)
        self._packed = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0)
        self._digest = blake2b(digest_size=_DIGEST_BYTES)

    def put(self, frame: dict[str, Any]) -> None:
        data = _encode(frame)
        self._digest.update(data)
        self._packed.write(len(data).to_bytes(4, "big") + data)

    def finish(self) -> None:
        self._packed.write(bytes(4) + self._digest.digest())
        self._packed.close()


def _check_file(path: Path) -> dict[str, Any]:
    """Read a file to its end, and return its first frame; Corrupt where it is not whole."""
    head: dict[str, Any] = {}
    for frame in _read_frames(path):
        head = head or frame
    if not {"at", "lease_s", "shards"} <= head.keys():
        raise Corrupt(f"{path} is damaged: it does not say what is in it")
    return head


def _read_frames(path: Path) -> Iterator[dict[str, Any]]:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise ConfigError(f"{path} is no backup of a cluster", hint="lyra cluster backup makes one", key="FILE")
            with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                while size := int.from_bytes(packed.read(4), "big"):
                    data = packed.read(size) if size <= _FRAME_BYTES_MAX else b""
                    digest.update(data)
                    yield _decode(data)
                if packed.read(_DIGEST_BYTES + 1) != digest.digest():
                    raise Corrupt(f"{path} is damaged, or was not written to its end")
    except OSError as error:
        if error.errno is not None:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        raise Corrupt(f"{path} is damaged: {error}") from None
    except (EOFError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise Corrupt(f"{path} is damaged: {error}") from None
