"""Prometheus' own checker, promtool, built from its Go module into ``out/`` (minutes of CPU, once)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.go_program import built

VERSION: Final = "v0.316.0"
PACKAGE: Final = "github.com/prometheus/prometheus/cmd/promtool"


def build() -> Path:
    """The program, built if it is not there. Without the clients of clouds that find targets: they are most of it."""
    return built("promtool", PACKAGE, VERSION, tags="remove_all_sd")


__all__ = ["PACKAGE", "VERSION", "build"]
