"""Vesper in editors: the answers by themselves, and the server spoken to by a client over stdio."""
