"""A host's signed verdicts: verified by a program without Rigwright, with a waived failure on the host, the box's own
check and a deploy."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import deploy, write_inventory
from tests.hosts.test_self_check import read_result, run_once
from tests.unit.signing_keys import make_key, public_key

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

DROP_IN = "/etc/systemd/system/rigwright-chat.service.d"
NONCE = "00112233445566778899aabbccddeeff"


def waive(check: str, observed: str) -> dict[str, str]:
    return {
        "check": check,
        "observed": observed,
        "owner": "ana",
        "reason": "a test of the vendor",
        "until": "2099-01-31",
    }


def test_a_chain_of_verdicts_shows_a_waived_failure(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    deploy(inventory)
    key = make_key(tmp_path, "ana")
    signers = tmp_path / "signers"
    signers.write_text(f'ana namespaces="verdict@rigwright" {public_key(key)}\n')

    def sign(*options: str) -> int:
        done = run_rigwright("check", str(inventory), "--sign", "--key", str(key), *options)
        assert "signed verdict" in done.stdout, done.stdout + done.stderr
        return done.returncode

    def verify(*options: str) -> subprocess.CompletedProcess[str]:
        files = sorted(map(str, tmp_path.glob("verdicts/*/*.jsonl")))
        program = run_rigwright("verify-verdict", "--program").stdout
        command = [sys.executable, "-I", "-S", "-c", program, "--signers", str(signers), "--complete", *options, *files]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert sign("--nonce", NONCE) == 0
    assert verify("--nonce", NONCE).returncode == 0
    fingerprint = converged.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
    assert f'host_key: "{fingerprint}"' in verify().stdout

    converged.run(f"mkdir {DROP_IN}; printf '[Service]\\nNice=5\\n' > {DROP_IN}/x.conf; systemctl daemon-reload")
    done = run_rigwright("check", str(inventory), "--json")
    failed = [one for host in json.loads(done.stdout)["hosts"] for one in host["checks"] if one["verdict"] == "fail"]
    assert "U02" in {one["id"] for one in failed}
    assert (sign(), verify().returncode) == (1, 1)
    waivers = [
        waive(one["id"], value) | ({"part": one["part"]} if one["part"] else {})
        for one in failed
        for value in one["observed"]
    ]
    inventory = write_inventory(tmp_path, lab, converged, waivers=[*waivers, waive("U02", f"drop-in {DROP_IN}/x.conf")])
    assert sign() == 0
    told = verify()
    assert (told.returncode, "conforms with waivers" in told.stdout) == (0, True), told.stdout + told.stderr
    converged.run(f"printf '[Service]\\nNice=6\\n' > {DROP_IN}/y.conf; systemctl daemon-reload")
    assert (sign(), verify().returncode) == (1, 1)
    converged.run(f"rm {DROP_IN}/y.conf; systemctl daemon-reload")

    # a deploy brings the waivers to the box, names the failure, and leaves it
    done = run_rigwright("deploy", str(inventory))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "waived by the inventory: U02" in done.stdout + done.stderr
    assert "x.conf" in converged.run(f"ls {DROP_IN}")
    assert run_once(converged) == ("ok", set())
    assert read_result(converged)[2] == set()
    assert [one["check"] for one in json.loads(converged.run("cat /var/lib/rigwright/self_check/state.json"))["waived"]]

    (third,) = tmp_path.glob("verdicts/*/000003.jsonl")
    kept = third.read_bytes()
    third.write_bytes(kept.replace(b"waived", b"ok", 1))
    assert verify().returncode == 2
    third.unlink()
    assert "refused (missing)" in verify().stderr
    third.write_bytes(kept)
    assert verify().returncode == 1


TPM = "/run/tpm"


@pytest.mark.all_only
def test_a_host_with_a_tpm_adds_its_quote(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    converged.run(
        "apt-get -qq update && apt-get -qq -y --no-install-recommends install swtpm tpm2-tools >/dev/null 2>&1"
    )
    sockets = f"--server type=unixio,path={TPM}/tpm --ctrl type=unixio,path={TPM}/tpm.ctrl"
    converged.run(
        f"mkdir -p {TPM} && systemd-run -q --unit=tpm swtpm socket --tpm2 --tpmstate dir={TPM} {sockets} "
        "--flags startup-clear,not-need-init "
        f"&& timeout 20 sh -c 'until [ -S {TPM}/tpm.ctrl ]; do sleep 0.05; done' "
        f"&& echo TPM2TOOLS_TCTI=swtpm:path={TPM}/tpm >> /etc/environment"
    )
    inventory, key = write_inventory(tmp_path, lab, converged), make_key(tmp_path, "ana")
    (tmp_path / "signers").write_text(f"ana {public_key(key)}\n")
    done = run_rigwright("check", str(inventory), "--sign", "--key", str(key))
    assert "signed verdict 1" in done.stdout, done.stdout + done.stderr
    assert "no quote" not in done.stderr
    (path,) = tmp_path.glob("verdicts/*/000001.jsonl")
    pem = tmp_path / "box.pem"
    pem.write_bytes(base64.b64decode(json.loads(path.read_bytes().split(b"\n")[1])["tpm"]["key"]))
    words = ["verify-verdict", "--signers", str(tmp_path / "signers"), "--tpm-key", str(pem), str(path)]
    told = run_rigwright(*words)
    assert "quote of a TPM: by SHA256:" in told.stdout, told.stdout + told.stderr
    converged.run("systemctl stop tpm")
    done = run_rigwright("check", str(inventory), "--sign", "--key", str(key))
    assert "no quote of its TPM: tpm2_createprimary: " in done.stderr
    assert "refused (missing)" in run_rigwright(*words, str(path).replace("000001", "000002")).stderr
