"""The truth about the flights, from the CSV alone."""

from __future__ import annotations

import zipfile

import pyarrow.compute as pc
import pytest

from examples.demo import data, truth

HEAD = "carrier,arr_delay,flight\n"


def small(tmp_path, lines):
    archive = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(archive, "w") as package:
        package.writestr("flights.csv", HEAD + "".join(f"{line}\n" for line in lines))
    return archive


def test_a_flight_is_late_above_60_minutes_and_a_cancelled_one_is_not(tmp_path):
    found = truth.read_truth(small(tmp_path, ["AA,61,1", "AA,60,2", "B6,NA,3", "AA,-5,4", "B6,,5"]))
    assert found.late == {0}
    assert found.flights == {"AA": 3, "B6": 2}
    assert found.delay_minutes == {"AA": 116, "B6": 0}
    assert found.total == 5


def test_the_first_rows_can_be_taken(tmp_path):
    assert truth.read_truth(small(tmp_path, ["AA,61,1", "AA,99,2"]), rows=1).late == {0}


def test_the_package_has_336776_flights_of_which_27789_are_late():
    found = truth.read_truth(data.csv_archive())
    assert found.total == 336_776
    assert len(found.late) == 27_789
    assert len(found.flights) == 16


def test_what_is_loaded_agrees_with_the_csv():
    table = data.read_flights(rows=20_000)
    found = truth.read_truth(data.csv_archive(), rows=20_000)
    assert table.schema.equals(data.SCHEMA)
    assert set(table.filter(pc.field("arr_delay") > truth.LATE_MINUTES)["id"].to_pylist()) == found.late
    assert pc.sum(table["arr_delay"]).as_py() == sum(found.delay_minutes.values())


def test_a_missing_package_says_what_to_do(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(FileNotFoundError, match="make install"):
        data.csv_archive()
