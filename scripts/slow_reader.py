"""A client that asks for a stream and does not read it.

Its buffers are those of a far-away client rather than of this machine's loopback, which takes megabytes that nobody has
read, so that a server feels at once that nobody reads.
"""

import json
import socket
from typing import Any

_RECEIVE_BYTES = 2048
# A segment as Ethernet carries it; a server's buffer is sized in segments.
_SEGMENT_BYTES = 1400
_TIMEOUT_S = 60


def ask(port: int, path: str, request: dict[str, Any]) -> socket.socket:
    """Sends a request over a connection whose buffers hold little; reading or closing it is the caller's."""
    body = json.dumps(request).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
    client.settimeout(_TIMEOUT_S)
    client.connect(("127.0.0.1", port))
    client.sendall(head.encode() + body)
    return client


def read_to_end(client: socket.socket) -> bytes:
    """All that the server still sends, until it closes the connection or resets it."""
    received = bytearray()
    try:
        while chunk := client.recv(1 << 16):
            received += chunk
    except ConnectionResetError:
        pass
    return bytes(received)
