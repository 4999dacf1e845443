"""Logs of format version 1 with every action, as bytes that never change: they must fold as they always did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from txnlog.fold.apply import apply_entry
from txnlog.fold.state import State
from txnlog.format.actions import KNOWN_ACTIONS
from txnlog.format.codec import decode_entry, encode_action, encode_entry

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"

EXPECTED = {
    "namespace": (
        "940713a3170796ed036e1a6a80c1813fa9f7cd7cb3c5e181ffcdd702c42bad74",
        "994354f7fcee9acc130bf4505fec8f5d",
    ),
    "adopted": (
        "b27046af12c3fff30124cb09de1dc9619849ea809899e5964afb86074fd0a54e",
        "bac134a588ab3fb2599d240904348e9f",
    ),
    "adopting_root": (
        "23277231d84279d43df0faf8f4fed65ad464e35f065335a92377e5a2363aab22",
        "d5e615c54a8d0405a16dc923289f3be2",
    ),
    "clients": (
        "6f7afa8d7bd2bb793edffe4ddb7315d315098320718e7168a1f2653c79b0b38b",
        "afc4c3e38e7759668f3959c07a5bc37e",
    ),
    "root": ("4f5a6194507ca4f1d17fbb6f33d6e17a4e7f000926e12417c3bee71763dbb471", "4b852f60397a08e08323f7e25fdc72a8"),
}
"""Of each log: SHA-256 of ``state.json``, and the digest of the newest entry, which stands for all the bytes before."""

logs = pytest.mark.parametrize("name", EXPECTED)


def entries(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((GOLDEN / name).glob("[0-9]*.json"))]


def folded(name: str) -> State:
    state = State()
    for version, data in enumerate(entries(name)):
        apply_entry(state, decode_entry(data, version))
    return state


def lines(state: State) -> Iterator[str]:
    """A state as text: of every table its name, then a line a row, in the order of the keys."""
    for name, table in state.as_tables().items():
        yield f"# {name}"
        for key, value in sorted(table.items()):
            yield msgspec.json.encode([key, f"{value:x}" if name == "used" else value]).decode()


def test_every_action_of_the_protocol_is_there():
    tags = {line.split('"')[3] for name in EXPECTED for data in entries(name) for line in data.decode().splitlines()}
    assert tags == KNOWN_ACTIONS


@logs
def test_the_log_folds_to_the_state_that_was_recorded(name):
    found = list(lines(folded(name)))
    assert found == (GOLDEN / name / "state.txt").read_text(encoding="utf-8").splitlines()


@logs
def test_neither_the_log_nor_its_state_was_made_anew(name):
    recorded = hashlib.sha256((GOLDEN / name / "state.txt").read_bytes()).hexdigest()
    assert (recorded, folded(name).head.digest) == EXPECTED[name]


@pytest.mark.clause("P-24")
@logs
def test_an_entry_decoded_and_encoded_has_the_same_bytes(name):
    for version, data in enumerate(entries(name)):
        entry = decode_entry(data, version)
        assert encode_entry(entry.header, [encode_action(action) for action in entry.actions]) == data
