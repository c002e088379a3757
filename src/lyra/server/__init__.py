"""The server: one kernel for programs in any language (gRPC), for applications (HTTP) and for people.

Start with `serve`, which runs a kernel behind both faces; `identity` says who calls, `settings` on what it listens.
`grpc/` and `http/` are the faces, `generated/` holds the message classes of `proto/`, and `app` gives the HTTP face to
mount into an application of one's own. The server never acts by itself: each request is a call of the kernel.
"""
