"""`python -m lab.file_server_program MODEL ADDRESS PORT CGROUP`: write the tiny model and serve its folder until ended.

A module of its own because what it imports is slow to load, and every deploy to a throwaway host imports the lab.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from lab import cgroups, tiny_model


def main() -> None:
    """Serve, with ranges."""
    model, address, port, cgroup = sys.argv[1:]
    cgroups.join_cgroup(cgroup)
    tiny_model.write_model(Path(model))
    application = Starlette(routes=[Mount("/", StaticFiles(directory=Path(model).parent))])
    uvicorn.run(application, host=address, port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
