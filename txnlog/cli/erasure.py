"""The command that erases rows."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc

from txnlog.cli.commands import WARNINGS, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.results import Erased

_COMPARISONS: Final[dict[str, Callable[[Any, Any], pc.Expression]]] = {
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
_FORM: Final = '\'["customer", "==", "C-17"]\''


class Condition(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A condition on a column as JSON: ``["customer", "==", "C-17"]``, or with ``in`` and a list of values."""

    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str, Any]:
        """See ParamType."""
        if isinstance(value, tuple):
            return value
        try:
            column, comparison, wanted = json.loads(value)
        except (ValueError, TypeError):
            self.fail(f"{value!r} is not of the form {_FORM}", param, ctx)
        if not (isinstance(column, str) and isinstance(comparison, str) and comparison in {*_COMPARISONS, "in"}):
            self.fail(f"{value!r} compares with one of {', '.join(_COMPARISONS)}, in", param, ctx)
        if (comparison == "in") != isinstance(wanted, list) or wanted is None:
            self.fail(f"{value!r}: a list of values stands behind in, and one value behind the others", param, ctx)
        return column, comparison, wanted


@click.command()
@click.argument("topic")
@click.option(
    "--where",
    "conditions",
    type=Condition(),
    multiple=True,
    required=True,
    metavar="CONDITION",
    help=f"Which rows: {_FORM}; several must all hold.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would go, and where else such rows are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def erase(
    target: Target,
    topic: str,
    conditions: Sequence[tuple[str, str, Any]],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase the rows of a topic that satisfy conditions, out of every file and every version.

    The newest version is without them at once. "waiting" names the files that have some yet: a vacuum deletes them, and
    the same command, given again, says whether any is left.

    Exit code 1: something is left to wait for.
    """
    with target.open(write=not dry_run) as ns:
        where = _expression(ns.topic(topic).schema, conditions)
        if not (dry_run or yes):
            found = ns.erase(topic, where, dry_run=True)
            count = _total(found)
            if count:
                click.confirm(f"Erase {count:,} rows of {topic!r} of {ns.name!r}, for ever?", abort=True)
        done = ns.erase(topic, where, dry_run=dry_run)
    Printer(as_json).record(dataclasses.asdict(done))
    if not done.is_complete:
        sys.exit(WARNINGS)


def _total(found: Erased) -> int:
    return found.erased_messages + sum(map(_total, found.dead_letters))


def _expression(schema: pa.Schema, conditions: Sequence[tuple[str, str, Any]]) -> pc.Expression:
    """All conditions as one, with values of the types of their columns."""
    return reduce(and_, [_compared(schema, *condition) for condition in conditions])


def _compared(schema: pa.Schema, column: str, comparison: str, wanted: Any) -> pc.Expression:
    if column not in schema.names:
        raise click.BadParameter(
            f"there is no column {column!r}; there are: {', '.join(schema.names)[:200]}", param_hint="'--where'"
        )
    kind = schema.field(column).type
    if comparison == "in":
        return pc.field(column).isin(pa.array([_value(item, kind).as_py() for item in wanted], kind))
    return _COMPARISONS[comparison](pc.field(column), pc.scalar(_value(wanted, kind)))


def _value(given: Any, kind: pa.DataType) -> pa.Scalar:
    """A value of JSON as one of a column's type: exactly that one, since what it means is erased."""
    try:
        if isinstance(given, bool) is pa.types.is_boolean(kind):
            if pa.types.is_boolean(kind) or (isinstance(given, int) and pa.types.is_integer(kind)):
                return pa.scalar(given, kind)
            if pa.types.is_decimal(kind) and isinstance(given, int | float | str):
                return pa.scalar(Decimal(str(given)), kind)
            if pa.types.is_floating(kind) and isinstance(given, int | float):
                found = pa.scalar(float(given), kind)
                if found.as_py() == given:
                    return found
            if isinstance(given, str) and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
                return pa.scalar(given, kind)
            if isinstance(given, str) and pa.types.is_temporal(kind):
                return pa.scalar(given).cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, ArithmeticError):
        pass
    raise click.BadParameter(f"{given!r} is no {kind}", param_hint="'--where'")


__all__ = ["erase"]
