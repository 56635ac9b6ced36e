"""A proxy that refuses streams: an agent asks it for whole answers, as it does behind gateways that cannot stream."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scripts.server import Server


@contextmanager
def without_streams(server: Server) -> Iterator[str]:
    """The URL of the proxy."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if json.loads(body).get("stream"):
                self.answer(404, b"")
                return
            forwarded = http.client.HTTPConnection("127.0.0.1", server.port)
            forwarded.request("POST", self.path, body, {"Content-Type": "application/json"})
            response = forwarded.getresponse()
            self.answer(response.status, response.read())
            forwarded.close()

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """The server logs what matters."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}"
        finally:
            proxy.shutdown()
            thread.join()
