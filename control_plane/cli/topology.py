"""`meridian topology`: regions, datacenters, fleets, models and deployments, declared as one document."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from control_plane.cli import render
from control_plane.cli.errors import UsageFault
from control_plane.cli.invocation import Invocation, command
from control_plane.cli.render import Cell, Column, Sheet
from control_plane.contracts.deployment import Pool
from control_plane.contracts.topology import TopologyDocument

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Declare what there is, and show it.")

PATH = "/operator/v1/topology"
DocumentFile = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The document, JSON; - reads it from "
                                                                                 "standard input.")]


@command(app, "apply")
def apply(cli: Invocation, file: DocumentFile) -> None:
    """Create or change what the document names; what it leaves out stays as it is."""
    document = read_document(file)
    with cli.client() as client:
        applied = client.put(PATH, document, TopologyDocument)
    cli.show(applied, sheets(applied))


@command(app, "show")
def show(cli: Invocation) -> None:
    """Show what is declared; with -o json, as a document to edit and apply."""
    with cli.client() as client:
        document = client.get(PATH, TopologyDocument)
    cli.show(document, sheets(document))


def read_document(file: Path) -> TopologyDocument:
    """The document in a file.

    Raises:
        UsageFault: it cannot be read, or is no topology document.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        return TopologyDocument.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageFault(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    except ValidationError as error:
        faults = error.errors()
        place = ".".join(map(str, faults[0]["loc"])) or "the document"
        more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
        raise UsageFault(f"{file}: {place}: {faults[0]['msg']}{more}") from error


def sheets(document: TopologyDocument) -> list[Sheet]:
    """What is declared, as tables."""
    centers: list[list[Cell]] = [[c.id, c.region, render.count(c.weight)] for c in document.datacenters]
    fleets: list[list[Cell]] = [[f.id, f.datacenter, f"{f.gpu_total} × {f.gpu_type}", f.ingress_url]  # noqa: RUF001
                                for f in document.fleets]
    models: list[list[Cell]] = [[m.id, m.display_name, render.count(m.context_window), m.price.version]
                                for m in document.models]
    deployments: list[list[Cell]] = [[d.id, d.model, d.fleet, _pools(d.pools)] for d in document.deployments]
    return [
        Sheet([Column("DATACENTER"), Column("REGION"), Column("WEIGHT", right=True)], centers, "No datacenters."),
        Sheet([Column("FLEET"), Column("DATACENTER"), Column("GPUS"), Column("INGRESS", loose=True)], fleets,
              "No fleets."),
        Sheet([Column("MODEL"), Column("NAME", loose=True), Column("CONTEXT", right=True), Column("PRICE")], models,
              "No models."),
        Sheet([Column("DEPLOYMENT"), Column("MODEL"), Column("FLEET"), Column("POOLS", loose=True)], deployments,
              "No deployments."),
    ]


def _pools(pools: list[Pool]) -> str:
    return ", ".join(f"{pool.replicas} {pool.role}" for pool in pools)
