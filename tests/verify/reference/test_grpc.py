"""The page of the gRPC server has what the contract has."""

from __future__ import annotations

from lyra.server.generated import engine_pb2 as pb
from verify.reference.pages import pages


def test_the_page_has_every_rpc_message_field_and_enum():
    """Read from the contract's text, held against the classes that protoc made of it."""
    lines = pages()["grpc.md"].splitlines()
    for service in pb.DESCRIPTOR.services_by_name.values():
        assert f"## {service.name}" in lines
        for rpc in service.methods:
            row = next(line for line in lines if line.startswith(f"| `{rpc.name}` |"))
            stream = "stream " if rpc.server_streaming else ""
            assert f"| {rpc.input_type.name} | {stream}{rpc.output_type.name} | " in row
            assert not row.endswith("|  |")  # it says what it does
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        row = next(line for line in lines if line.startswith(f"| `{message.name}` |"))
        for field in message.fields:
            assert f"{field.number} `{field.name}` " in row
    for enum in pb.DESCRIPTOR.enum_types_by_name.values():
        row = next(line for line in lines if line.startswith(f"| `{enum.name}` |"))
        for value in enum.values:
            assert value.number == 0 or f"{value.number} {value.name}" in row
