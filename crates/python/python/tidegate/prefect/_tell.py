"""What a task tells Prefect: artifacts of the result, an event for dead letters."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import TaskRunContext
from prefect.events import emit_event

#: The counts of a result, in the order of the table.
COUNTS = (
    "read", "added", "written", "inserted", "updated", "unchanged", "deleted", "no_match", "failed", "rejected",
    "filtered", "deduped", "repaired", "calls", "throttled",
)
#: The shortest time between two updates of the progress, in seconds.
EVERY = 5.0


def slug(text: str) -> str:
    """A key of an artifact: lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "run"


def artifacts(result: Mapping[str, Any], exit_code: int, report: str | None, report_url: str | None) -> None:
    """The result as a table, the reconciliation as text, a link to the report with its map."""
    name = str(result.get("pipeline", "run"))
    key = f"tidegate-{slug(name)}"
    shown = {"read", "written", "rejected"}
    rows = [{"outcome": one, "records": result[one]} for one in COUNTS if result.get(one) or one in shown and one in result]
    create_table_artifact(rows, key=f"{key}-counts", description=f"{name}: {result.get('status')}, exit code {exit_code}")
    create_markdown_artifact(reconciliation(result, exit_code), key=f"{key}-reconciliation")
    if report is not None:
        link = report_url or "file://" + os.path.abspath(report)
        create_link_artifact(link, key=f"{key}-report", link_text=f"{name}: report with a map")


def reconciliation(result: Mapping[str, Any], exit_code: int) -> str:
    """What came of every record, as Markdown."""
    def count(name: str) -> int:
        return int(result.get(name) or 0)

    offered, written = count("read") + count("added"), count("written")
    parts = [("written", written)] + [(name, count(name)) for name in ("rejected", "filtered", "deduped")]
    lines = [
        f"## {result.get('pipeline', 'run')}: {result.get('status')}",
        "",
        f"{offered:,} records = " + " + ".join(f"{n:,} {name}" for name, n in parts if n or name == "written")
        + (" (all accounted for)" if result.get("balanced") else " (**does not add up**)"),
        "",
    ]
    if result.get("sink_rows") is not None:
        lines.append(f"The sink holds {result['sink_rows']:,} rows: `{result.get('sink')}`, {result.get('crs')}.\n")
    if result.get("extent"):
        lines.append("Extent: " + ", ".join(f"{x:g}" for x in result["extent"]) + "\n")
    if result.get("gates"):
        lines += ["| gate | severity | checked | failed |", "|---|---|---|---|"]
        lines += [f"| {g['gate']} | {g['severity']} | {g['looked']:,} | {g['failed']:,} |" for g in result["gates"]]
        lines.append("")
    codes = result.get("rejected_by_code") or {}
    if codes:
        lines.append("Rejected: " + ", ".join(f"{code} {n:,}" for code, n in codes.items()) + f" in `{result.get('rejects')}`\n")
    lines += [f"Warning: {warning}\n" for warning in result.get("warnings") or []]
    lines.append(f"Run `{result.get('run')}`, data version `{result.get('data_version')}`, exit code {exit_code}.")
    return "\n".join(lines)


def letters_event(result: Mapping[str, Any]) -> None:
    """An event for an automation, if records became dead letters."""
    dead = int(result.get("rejected") or 0) + int(result.get("failed") or 0)
    if dead == 0:
        return
    emit_event(
        event="tidegate.dead-letters",
        resource={
            "prefect.resource.id": f"tidegate.pipeline.{result.get('pipeline')}",
            "prefect.resource.name": str(result.get("pipeline")),
        },
        payload={
            "letters": dead,
            "codes": result.get("rejected_by_code") or {},
            "store": result.get("rejects"),
            "run": result.get("run"),
        },
    )


def progress(name: str) -> Callable[[Any], None]:
    """A function for ``on_progress`` that keeps a progress artifact up to date."""
    artifact: UUID | None = None
    last = 0.0
    # Without the loop of a task run there is nobody to tell.
    enabled = TaskRunContext.get() is not None

    def tell(now: Any) -> None:
        nonlocal artifact, last
        if not enabled or not now.total or time.monotonic() - last < EVERY:
            return
        last = time.monotonic()
        share = min(100.0 * now.done / now.total, 100.0)
        if artifact is None:
            found = create_progress_artifact(share, key=f"tidegate-{slug(name)}-progress", description=name)
            artifact = found if isinstance(found, UUID) else None
        else:
            update_progress_artifact(artifact, progress=share)

    return tell
