"""Run a command in an environment that also has the clients of the benchmarks' peers: ``.venv-peers``.

``python -m tools.peers_environment -m benchmarks.peers run`` makes the environment from ``requirements/peers.lock``,
if it is not there, and takes all other packages from the environment that runs this.
"""

from __future__ import annotations

import subprocess
import sys

from tools.install import ROOT, one_at_a_time
from tools.layered_environment import install

LOCK = ROOT / "requirements" / "peers.lock"
FOLDER = ROOT / ".venv-peers"


def main(arguments: list[str]) -> int:
    """Make the environment, if it is not there, and run the arguments in its Python."""
    with one_at_a_time():
        python = install(FOLDER, LOCK, stamp="peers")
    return subprocess.run([str(python), *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
