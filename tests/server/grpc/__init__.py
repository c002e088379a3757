"""The gRPC face: every RPC over a real socket, health, reflection, TLS, limits, draining."""
