"""A hub of models on this machine: it speaks the hub's protocol to the hub's own client, and fails on order.

    with Hub() as hub:
        commit = hub.repository("org/name", {"model.gguf": b"...", "config.json": b"{}"}, licence="mit")
        hub.fault(Cut(100), "org/name", "model.gguf", times=1)
        HfApi(endpoint=hub.url).model_info("org/name", files_metadata=True)

Small files come from the hub itself. Large ones come, as on the hub, from a second server at another port: the hub
leads there by a signed address that runs out.
"""

from __future__ import annotations

from tests.stand_ins.hub.request_handler import StandInHub as StandInHub
