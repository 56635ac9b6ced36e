"""Export: the core file, and the proof that a fresh process computes from it what preparation computed.

Owns the contract's construction, the file's bytes and their digest, and replay verification. A core appears under its
name whole or not at all. `core_pb2` is generated from helios/proto/core.proto and checked in; a test regenerates it:
`python -m grpc_tools.protoc -Ihelios/proto --python_out=ignition/export --pyi_out=ignition/export core.proto`.
"""
