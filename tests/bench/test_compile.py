"""`rigwright bench compile`, with everything real but how much of the engine is compiled."""

from __future__ import annotations

import re

from tests.bench.conftest import Box
from tests.bench.support import bench

# llama-server takes two cores five minutes, its smallest library seconds; cmake itself asks ninja for other things
NINJA = """#!/bin/sh
case "$*" in '-C build llama-server') exec /usr/bin/ninja -C build ggml-base ;; *llama-server*) exit 1 ;; esac
exec /usr/bin/ninja "$@"
"""


def test_an_engine_is_built_again_beside_its_role(box: Box) -> None:
    box.host.run(f"printf '%s' '{NINJA}' > /usr/local/bin/ninja && chmod 755 /usr/local/bin/ninja")
    before = box.host.run("ls /var/tmp")
    try:
        said = bench("compile", box.inventory)
    finally:
        box.host.run("rm /usr/local/bin/ninja")
    assert "role \N{DIVISION SIGN} plain" in said
    assert re.search(r"^llama\.cpp +CPU +\d+ +\d+ +\d+ +\d+ +\d+\.\d\d *$", said, re.MULTILINE)
    assert box.host.run("ls /var/tmp") == before
