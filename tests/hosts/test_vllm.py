"""The real vLLM in hosts without cards: it serves as an instance, over as many processes as it is told."""

from __future__ import annotations

from pathlib import Path

import requests
from openai import OpenAI

from lab.tunnel import tunnel
from lab.vllm_model import ANSWER
from rigwright.toml import tomllib
from tests.hosts import vllm_box
from tests.hosts.conftest import Boot, FirstRun
from tests.hosts.support import PORT, api_key, check, deploy, plan
from tests.hosts.test_path import NOT_RUN
from tests.hosts.vllm_box import Ground

SAID = "".join(ANSWER)
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hello?"}]}


def test_a_box_that_served_llama_cpp_serves_vllm_over_two_processes(
    boot: Boot, first_run: FirstRun, vllm: Ground, tmp_path: Path
) -> None:
    host = boot(*vllm.layers, first_run.layer)
    inventory = vllm_box.write(tmp_path, host, vllm, instances=vllm_box.TWO)
    planned = plan(inventory).planned
    run = vllm_box.deployed(inventory, host, vllm)
    assert set(run.changed) <= set(planned)
    verdicts = check(inventory)
    assert {i for i, word in verdicts.items() if word == "FAIL"} == set()
    # none is skipped for the kind of engine that it is
    assert {i for i, word in verdicts.items() if word == "skip"} == set(tomllib.loads(NOT_RUN.read_text())["checks"])
    with tunnel(host, PORT) as local:
        served = f"http://127.0.0.1:{local}"
        with OpenAI(base_url=f"{served}/v1", api_key=api_key(host)) as client:
            whole = client.chat.completions.create(**ASKED, temperature=0)
            assert (whole.choices[0].message.content or "").strip() == SAID
            pieces = list(client.chat.completions.create(**ASKED, stream=True))
            assert "".join(one.choices[0].delta.content or "" for one in pieces).strip() == SAID
        for path in ("/v1/chat/completions", "/invocations"):
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert requests.post(served + path, json=ASKED, headers=headers, timeout=20).status_code == 401
        assert "vllm:request_success_total" in requests.get(f"{served}/metrics", timeout=20).text
    assert deploy(inventory).changed == []
