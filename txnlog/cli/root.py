"""Commands that ``catalog`` carries out: the namespaces of a root, and topics as Delta tables.

``catalog`` stands on this package, so it is imported only when such a command runs. No Spark is needed.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Final

import click

from txnlog.cli.commands import Commands, json_option
from txnlog.cli.output import Printer
from txnlog.cli.target import Target
from txnlog.client.shadowing import check_not_hidden, not_loaded

_MODULE: Final = "catalog.namespaces"


def _opened(root: str, storage_options: dict[str, Any]) -> Any:
    """The catalog of a root. Raises UnsupportedFeature where Python finds another module of the name."""
    check_not_hidden(_MODULE)
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        raise not_loaded(_MODULE, _MODULE, error) from error
    return module.open_catalog(root, storage_options)


@click.group(cls=Commands)
def namespaces() -> None:
    """List, create or drop namespaces of a root: `txnlog ROOT namespaces list`."""


@namespaces.command("list")
@json_option
@click.pass_obj
def namespaces_list(target: Target, *, as_json: bool) -> None:
    """List the namespaces of ROOT, which stands in the place of ROOT/NAMESPACE."""
    with target.catalog(_opened) as cat:
        rows = [{"namespace": name} for name in cat.namespaces()]
    Printer(as_json).rows(rows)


@namespaces.command("create")
@click.argument("name")
@click.option("--if-not-exists", is_flag=True, help="A namespace that exists is no error.")
@json_option
@click.pass_obj
def namespaces_create(target: Target, name: str, *, if_not_exists: bool, as_json: bool) -> None:
    """Create a namespace in ROOT, and the root if it is the first one."""
    with target.catalog(_opened) as cat:
        made = cat.create_namespace(name, if_not_exists=if_not_exists)
    Printer(as_json).record({"namespace": made.name, "coordinator": made.coordinator})


@namespaces.command("drop")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def namespaces_drop(target: Target, name: str, *, yes: bool) -> None:
    """Take a namespace out of ROOT. No file is touched: the command prints the folder, which you remove."""
    with target.catalog(_opened) as cat:
        cat.namespace(name)  # nobody is asked about one that is not there
        if not yes:
            click.confirm(
                f"Drop the namespace {name!r} of {cat.root}? Programs that have it open and have written go on writing "
                "to its folder",
                abort=True,
            )
        folder = cat.drop_namespace(name)
    click.echo(folder)


@click.command()
@click.argument("topic_name", metavar="[TOPIC]", required=False)
@click.option("--repair", is_flag=True, help="Check every version of the tables, and write damaged ones again.")
@json_option
@click.pass_obj
def publish(target: Target, topic_name: str | None, *, repair: bool, as_json: bool) -> None:
    """Bring the Delta table of a topic up to date; without a topic, all tables of the namespace.

    The first call for a topic creates its table. Topics with delta "off" have none.
    """
    root, name = target.root_and_name()
    with target.catalog(_opened, root) as cat:
        found = (cat.repair if repair else cat.publish)(name, topic_name)
    Printer(as_json).rows([_row(item) for item in (found if topic_name is None else (found,))])


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Newest versions to list.")
@json_option
@click.pass_obj
def published(target: Target, topic_name: str, limit: int, *, as_json: bool) -> None:
    """List the newest versions of a topic's Delta table, with the version of the namespace that each shows.

    Where the newest versions are damaged, they are written again from the log.
    """
    root, name = target.root_and_name()
    with target.catalog(_opened, root) as cat:
        found = cat.published(name, topic_name, limit)
    Printer(as_json).rows([_row(item) for item in found])


def _row(published: Any) -> dict[str, Any]:
    return {field.name: getattr(published, field.name) for field in dataclasses.fields(published)}


__all__ = ["namespaces", "publish", "published"]
