"""Acts of nodes outside: requests, and how they are performed, logged and replayed."""
