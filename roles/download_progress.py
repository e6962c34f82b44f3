"""Progress of a download of many files, as its job writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rigwright.host import script_output
from roles.progress_task import ProgressTask

# Of a path, where it tells the operator nothing: a commit, or the folder of one package.
COMMIT = re.compile(r"\b[0-9a-f]{40}/|\A_packages/[0-9a-f]{16}/")


def parse_progress_document(value: str) -> Mapping[str, Any]:
    """The type of what a download of many files writes beside them; empty where it is not there yet.

    Raises:
        ValueError: it is something else.
    """
    if not value:
        return {}
    try:
        read = json.loads(value)
        rows = [
            {
                "path": script_output.free_text(str(row["path"])),
                "from": script_output.free_text(str(row["from"] or "")),
                "state": script_output.free_text(str(row["state"])),
                **{key: script_output.number(str(row[key])) for key in ("size", "done")},
            }
            for row in read["files"]
        ]
        return {"files": rows, **{key: script_output.number(str(read[key])) for key in ("done", "total")}}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the progress of a download") from None


def report_files(task: ProgressTask, document: Mapping[str, Any]) -> None:
    """Report how much of a job's files is there, and which of them is in work.

    Args:
        task: The job.
        document: As `parse_progress_document` has it: `done` and `total` in bytes, and `files`: `path`, `size`, `done`,
            `state` and `from` of each that is not done.
    """
    rows = [row for row in document["files"] if row["state"] != "waiting"]
    if rows:
        row = rows[-1]
        source = f" from {row['from']}" if row["from"] and row["state"] == "fetching" else ""
        task.last = f"{COMMIT.sub('', row['path'])}: {row['state']}{source}"
    task.report_done(document["done"], document["total"], "bytes")
