"""`rigwright init --serve` takes a box from nothing to an address: looked at, locked, validated, deployed."""

import json
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from tests.hosts.conftest import BootHost
from tests.hosts.download_servers import folder_content, internet_server
from tests.hosts.support import api_key, check_verdicts, is_serving
from tests.hosts.test_init import init

# one release is enough: the tested code runs on this machine
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]


def test_a_box_is_served_from_one_command(lab: ThrowawayLab, boot: BootHost, engine_layer: str, tmp_path: Path) -> None:
    host = boot(engine_layer)
    (tmp_path / "catalog").mkdir()
    with internet_server(folder_content(lab.shelf_folder)) as server:
        weight = f'[inputs.tiny-rig]\nkind = "weight"\nversion = "1"\nsources = ["{server.url}/{MODEL}"]\n'
        (tmp_path / "catalog/box.toml").write_text(weight)
        done = init(host, tmp_path, "--name", "box", "--variant", "llamacpp/demo", "--serve")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("==> rigwright ")] == [
        *(f"==> rigwright {verb} box.py" for verb in ("lock", "validate", "deploy")),
        "==> rigwright check box.py --serving",
    ]
    assert "tiny-rig answers at http://127.0.0.1:8020/v1 on the box" in done.stdout
    # its output holds: the address, the name and where the key lies
    (key,) = [line.split()[-4] for line in done.stdout.splitlines() if line.endswith("# the key")]
    assert host.run(f"cat {key}").strip() == api_key(host)
    body = json.dumps({"model": "tiny-rig", "messages": [{"role": "user", "content": "Hello?"}]})
    asks = f"curl -sf -H \"Authorization: Bearer $(cat {key})\" -H 'Content-Type: application/json' -d '{body}'"
    answer = json.loads(host.run(f"{asks} http://127.0.0.1:8020/v1/chat/completions"))
    assert answer["choices"][0]["message"]["content"].strip() == ANSWER
    assert is_serving(host)
    assert "FAIL" not in check_verdicts(tmp_path / "box.py").values()
