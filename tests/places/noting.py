"""A server that hands every request on to another one, and tells what it was asked."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Requests:
    """What a server was asked, in order: method and target, and the source of a copy."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.seen: list[tuple[str, str, str | None]] = []


@contextlib.contextmanager
def noting(endpoint: str) -> Iterator[Requests]:
    """A server that hands every request on to another one, and notes it."""
    behind = urlsplit(endpoint).netloc
    noted = Requests("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            noted.seen.append((self.command, self.path, self.headers.get("x-amz-copy-source")))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = http.client.HTTPConnection(behind, timeout=60)
            with contextlib.closing(connection):
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in {"connection", "expect"}:
                        connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                data = answer.read()
                self.send_response_only(answer.status, answer.reason)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
                for name, value in answer.getheaders():
                    if name.lower() not in {"connection", "content-length", "transfer-encoding"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - names of http.server

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    noted.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield noted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
