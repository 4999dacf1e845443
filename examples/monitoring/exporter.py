"""Serves the metrics of a namespace to Prometheus: ``python -m examples.monitoring.exporter ROOT/NAMESPACE``.

One read-only handle is opened and asked again and again: its counters count from the start of this program on.
"""

from __future__ import annotations

import argparse
import http.server
import json
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import txnlog
from txnlog.errors import TxnLogError

if TYPE_CHECKING:
    from spark_ext import Monitor
    from txnlog import Namespace

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PORT = 9464
"""Any that is free will do. Exporters of OpenTelemetry have the same one by default."""

_logger = logging.getLogger("txnlog.exporter")


class Exporter(http.server.ThreadingHTTPServer):
    """Answers ``GET /metrics`` on one address. Close it, and then the handle.

    A request that fails is answered with 500 and the error: Prometheus sets ``up`` to 0, for which there is an alert.
    """

    daemon_threads = True

    def __init__(
        self, ns: Namespace, address: tuple[str, int], *, partitions: bool = False, monitor: Monitor | None = None
    ) -> None:
        super().__init__(address, _Handler)
        self.ns = ns
        self.partitions = partitions
        self.monitor = monitor

    def text(self) -> str:
        """What is served; in a driver of Spark with a monitor, how far its queries are behind as well."""
        text = self.ns.metrics(partitions=self.partitions)
        return text if self.monitor is None else text.removesuffix("# EOF\n") + self.monitor.metrics()


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Exporter
    protocol_version: ClassVar[str] = "HTTP/1.1"  # type: ignore[misc]  # a constant of the class there as well

    def do_GET(self) -> None:
        """Called by the server for each request."""
        if self.path.partition("?")[0] != "/metrics":
            self._reply(404, "there is /metrics\n")
            return
        try:
            text = self.server.text()
        except TxnLogError as error:
            _logger.warning("no metrics: %s", error)
            self._reply(500, f"{type(error).__name__}: {error}\n")
        else:
            self._reply(200, text, CONTENT_TYPE)

    def _reply(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """One line a request is of no use to anybody."""
        _logger.debug(format, *args)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.monitoring.exporter", description=__doc__)
    parser.add_argument("namespace", metavar="ROOT/NAMESPACE")
    parser.add_argument("--port", type=int, default=PORT, help="0: any that is free")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at; by default this machine alone")
    parser.add_argument("--partitions", action="store_true", help="the lag of subscriptions also by partition")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO)
    storage_options = json.loads(os.environ.get("TXNLOG_STORAGE_OPTIONS") or "{}")
    with (
        txnlog.open(options.namespace, mode="r", storage_options=storage_options) as ns,
        Exporter(ns, (options.host, options.port), partitions=options.partitions) as exporter,
    ):
        host, port = exporter.server_address[:2]
        _logger.info("the metrics of %s are at http://%s:%s/metrics", ns.name, host, port)
        try:
            exporter.serve_forever()
        except KeyboardInterrupt:
            _logger.info("stopped")


if __name__ == "__main__":
    main()
