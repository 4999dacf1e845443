"""Run the notebooks from top to bottom, each in a fresh kernel, and see that they print what git has of them.

``python -m tools.notebooks [--write] [NAME ...]`` from the root of the checkout. A cell that raises, and so a claim of
a notebook that does not hold, fails the run; so does an output that is not the kept one, unless ``--write`` keeps it.
What was run lies in ``out/notebooks``, the pictures beside it as PNG.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import difflib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from tools.java_archive import QUICK

ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = ROOT / "notebooks"

_CELL_LIMIT_S: Final = 300
"""A cell that needs longer hangs: the longest starts a Spark of its own and takes some ten seconds."""

_METADATA: Final = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

_KERNEL: Final = (
    sys.executable,
    "-m",
    "ipykernel_launcher",
    "--InteractiveShell.colors=nocolor",
    "--InteractiveShell.xmode=Plain",
    "-f",
    "{connection_file}",
)

Notebook = Any
"""A notebook as nbformat reads it: nested dictionaries whose keys are attributes, too."""


# --- what is kept -----------------------------------------------------------------------------------------------------


def read(path: Path) -> Notebook:
    """The notebook in a file, valid by the format's own schema."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def digest_of_code(notebook: Notebook) -> str:
    """A digest of all code: kept with the outputs, it tells whether they are of this code."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def tidied(notebook: Notebook) -> Notebook:
    """The notebook without what differs from run to run: counts, times, what programs said to stderr."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict({**_METADATA, "code": digest_of_code(notebook)})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            for name, nothing in (("execution_count", None), ("metadata", nbformat.from_dict({}))):
                if name in output:
                    output[name] = nothing
    return notebook


def shown(notebook: Notebook) -> list[str]:
    """The lines that a reader sees below each cell; a picture is one line, whatever is in it."""
    lines = []
    for number, cell in enumerate(notebook.cells, 1):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            lines.append(f"--- cell {number}: {', '.join(sorted(data)) or output.output_type}")
            lines += output.get("text", data.get("text/plain", "")).splitlines()
    return lines


def pictures(notebook: Notebook) -> Iterator[bytes]:
    """The PNG pictures of a notebook, in order."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                yield base64.b64decode(output.data["image/png"])


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A notebook that was run.

    Attributes:
        path: the file in git.
        notebook: the notebook with its new outputs.
        seconds: how long it took.
        error: what a cell raised.
        change: lines that differ from what is kept.
    """

    path: Path
    notebook: Notebook
    seconds: float
    error: str | None
    change: Sequence[str]


def run(path: Path, out: Path, folder: Path) -> Run:
    """Run all cells in a new kernel; its log, the notebook as it was run and its pictures go to ``out``."""
    notebook = read(path)
    before = shown(tidied(notebook))
    started = time.monotonic()
    error = _execute(notebook, path, out / f"{path.stem}.log", folder)
    seconds = time.monotonic() - started
    nbformat.write(notebook, out / path.name)
    for number, picture in enumerate(pictures(notebook), 1):
        (out / f"{path.stem}-{number}.png").write_bytes(picture)
    notebook = tidied(notebook)
    change = [*difflib.unified_diff(before, shown(notebook), "kept", "now", n=1, lineterm="")]
    return Run(path, notebook, seconds, error, change)


class _ThisPython(KernelSpecManager):
    """Whatever kernels the machine has under which names: this Python is the one to use."""

    def get_kernel_spec(self, _name: str) -> KernelSpec:
        return KernelSpec(argv=[*_KERNEL], display_name="Python 3", language="python")


def _execute(notebook: Notebook, path: Path, log: Path, folder: Path) -> str | None:
    """Fill in the outputs; what a cell raised, if one did."""
    manager = AsyncKernelManager(
        kernel_spec_manager=_ThisPython(), connection_file=str(folder / f"{path.stem}-kernel.json")
    )
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, km=manager, timeout=_CELL_LIMIT_S, resources=resources)
    try:
        with log.open("w") as output:
            environment = {**os.environ, **surroundings(folder)}
            asyncio.run(client.async_execute(cleanup_kc=True, env=environment, stdout=output, stderr=output))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)
    return None


def surroundings(folder: Path) -> dict[str, str]:
    """Settings for a kernel: it finds and leaves nothing in a home folder, and nothing on the machine."""
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR")
    places = {name: folder / name.lower() for name in (*names, "SPARK_LOCAL_DIRS", "TMPDIR")}
    for place in places.values():
        place.mkdir(exist_ok=True)
    return {
        **{name: str(place) for name, place in places.items()},
        "PYSPARK_SUBMIT_ARGS": f'--driver-java-options "{QUICK} -Djava.io.tmpdir={folder}" pyspark-shell',
    }


def main(arguments: Sequence[str]) -> int:
    """Run the notebooks that are named, or all; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only notebooks whose file name holds one of these")
    parser.add_argument("--write", action="store_true", help="keep the new outputs")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time")
    parser.add_argument("--folder", type=Path, default=NOTEBOOKS, help="where the notebooks are")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "notebooks", help="for what was run")
    options = parser.parse_args(arguments)
    wanted = options.names or [""]
    paths = [path for path in sorted(options.folder.glob("*.ipynb")) if any(name in path.name for name in wanted)]
    if not paths:
        parser.error(f"no notebook of {options.folder} is called like {' or '.join(wanted)}")
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="txnlog-notebooks-", ignore_cleanup_errors=True) as folder:
        run_one = functools.partial(run, out=options.out, folder=Path(folder))
        with ThreadPoolExecutor(options.jobs) as pool:
            good = [_tell(done, write=options.write) for done in pool.map(run_one, paths)]
    return 0 if all(good) else 1


def _tell(done: Run, *, write: bool) -> bool:
    """Say how it went, and keep the outputs if that is asked for; whether it is good."""
    good = done.error is None and (write or not done.change)
    print(f"{done.path.name}: {'done' if good else 'FAILED'} in {done.seconds:.0f} s", flush=True)
    if done.error is not None:
        print(done.error, flush=True)
    elif write:
        nbformat.write(done.notebook, done.path)
    elif done.change:
        print("It prints something else than git has; to keep that: make notebooks ARGS=--write", flush=True)
        print("\n".join(done.change), flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
