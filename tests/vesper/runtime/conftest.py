"""A PostgreSQL server of the tests' own."""

from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures
