"""Editor support: the core by itself, and the server spoken to by a client over stdio."""
