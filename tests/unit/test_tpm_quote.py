"""Quotes of a TPM in verdicts: by swtpm, a TPM in software, and the real tpm2-tools, through the script of hosts."""

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from checks.tpm_quote import (
    QuoteFailed,
    digest_quoted_details,
    load_tpm_key,
    parse_quote,
    read_registers,
    render_quote_script,
    verify_quote,
)
from cli import main
from lab import machine_requirements
from rigwright.signing.refusals import SignatureRefused
from tests.unit.polling import wait_until
from tests.unit.test_signed_verdict import NONCE, Verdicts, digest, keys, verdicts  # noqa: F401 (fixtures)

# ruff: noqa: F811 (fixtures of another file)

PROGRAMS = {"swtpm": "swtpm", "tpm2_quote": "tpm2-tools"}
"""Program -> Debian package."""
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and bool(machine_requirements.missing_packages(PROGRAMS)),
    reason="without root, it needs the packages swtpm and tpm2-tools",
)


class SoftwareTpm:
    """A TPM in software, and the script of hosts."""

    def __init__(self, socket: Path) -> None:
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TPM2TOOLS_TCTI": f"swtpm:path={socket}"}

    def quote(self, digest: str) -> dict[str, str] | None:
        """A quote over a digest."""
        return parse_quote(run_script(digest, self.environment))

    def run(self, *words: str) -> None:
        """Run one of tpm2-tools."""
        subprocess.run(words, env=self.environment, check=True, capture_output=True)


def run_script(digest: str, environment: dict[str, str]) -> list[str]:
    """The output of the script."""
    words = ["sh", "-c", render_quote_script(digest)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(scope="module")
def make_tpm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Starts TPMs, each with a seed of its own."""
    machine_requirements.install_programs(PROGRAMS)
    running = []

    def start() -> SoftwareTpm:
        folder = tmp_path_factory.mktemp("tpm")
        socket, control = folder / "tpm", folder / "tpm.ctrl"
        words = [f"dir={folder}", "--server", f"type=unixio,path={socket}", "--ctrl", f"type=unixio,path={control}"]
        command = ["swtpm", "socket", "--tpm2", "--flags", "startup-clear,not-need-init", "--tpmstate", *words]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until(lambda: socket.exists() and control.exists())
        return SoftwareTpm(socket)

    yield start
    for process in running:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def tpm(make_tpm: Any) -> SoftwareTpm:
    found: SoftwareTpm = make_tpm()
    return found


def quoted(verdicts: Verdicts, tpm: SoftwareTpm, **changes: Any) -> dict[str, Any]:
    """The details of a verdict with the quote of a TPM."""
    details = verdicts.details(**changes)
    return details | {"tpm": tpm.quote(digest_quoted_details(details))}


def key_of(details: dict[str, Any]) -> bytes:
    return base64.b64decode(details["tpm"]["key"])


def refusal(details: dict[str, Any], *keys_: bytes) -> str:
    try:
        verify_quote(details, keys_)
    except SignatureRefused as error:
        return error.reason
    return ""


def test_a_tpm_has_the_same_key_for_each_quote_and_keeps_nothing(verdicts: Verdicts, tpm: SoftwareTpm) -> None:
    found = [quoted(verdicts, tpm, nonce=nonce) for nonce in (None, NONCE, None, NONCE)]  # it has room for three keys
    assert len({key_of(one) for one in found}) == 1
    assert verify_quote(found[1], [key_of(found[0])]).startswith("SHA256:")


def test_a_quote_is_of_one_verdict_one_tpm_and_its_registers(
    verdicts: Verdicts, tpm: SoftwareTpm, make_tpm: Any
) -> None:
    details = quoted(verdicts, tpm)
    key = key_of(details)
    assert refusal(details, key) == ""
    assert refusal(details | {"deep": True}, key) == "other_subject"
    assert refusal(details | {"nonce": NONCE}, key) == "other_subject"
    assert refusal({name: value for name, value in details.items() if name != "tpm"}, key) == "missing"
    other = quoted(verdicts, make_tpm())
    assert refusal(other, key) == "unknown_signer"
    assert refusal(details | {"tpm": other["tpm"] | {"key": details["tpm"]["key"]}}, key) == "changed"
    assert (
        refusal(details | {"tpm": details["tpm"] | {"pcrs": base64.b64encode(b"\1" * 256).decode()}}, key) == "changed"
    )
    tpm.run("tpm2_pcrextend", f"7:sha256={'b' * 64}")
    after = quoted(verdicts, tpm)
    assert after["tpm"]["pcrs"] != details["tpm"]["pcrs"]
    assert refusal(after | {"tpm": after["tpm"] | {"pcrs": details["tpm"]["pcrs"]}}, key) == "changed"


@pytest.mark.parametrize("part", ["quote", "signature", "pcrs"])
def test_each_byte_of_a_quote_counts(verdicts: Verdicts, tpm: SoftwareTpm, part: str) -> None:
    details = quoted(verdicts, tpm)
    key, content = key_of(details), base64.b64decode(details["tpm"][part])
    for place in range(len(content)):
        other = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        changed = details | {"tpm": details["tpm"] | {part: base64.b64encode(other).decode()}}
        assert refusal(changed, key) in ("changed", "malformed"), place
    for value in ("", "?", content[:-1], [], None):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        assert refusal(details | {"tpm": details["tpm"] | {part: text}}, key), value


def test_the_key_of_quotes_signs_nothing_else(verdicts: Verdicts, tpm: SoftwareTpm, tmp_path: Path) -> None:
    details = quoted(verdicts, tpm)
    digest, key = digest_quoted_details(details), str(tmp_path / "key")
    attributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|noda"
    tpm.run("tpm2_createprimary", "-C", "e", "-G", "ecc256:ecdsa-sha256:null", "-c", key, "-a", attributes)
    tpm.run("tpm2_flushcontext", "-t")
    # the TPM's clock over the same digest, by the same key
    time, signature = tmp_path / "time", tmp_path / "signature"
    words = ["-q", digest, "-g", "sha256", "-f", "plain", "-o", str(signature), "--attestation", str(time)]
    tpm.run("tpm2_gettime", "-c", key, *words)
    tpm.run("tpm2_flushcontext", "-t")
    parts = {"quote": time, "signature": signature}
    encoded = {name: base64.b64encode(path.read_bytes()).decode() for name, path in parts.items()}
    assert refusal(details | {"tpm": details["tpm"] | encoded}, key_of(details)) == "malformed"
    # a quote that the forger has written
    forged = tmp_path / "forged"
    forged.write_bytes(base64.b64decode(details["tpm"]["quote"]))
    with pytest.raises(subprocess.CalledProcessError):
        tpm.run("tpm2_sign", "-c", key, "-g", "sha256", "-o", str(signature), str(forged))
    tpm.run("tpm2_flushcontext", "-t")


def test_a_key_of_another_kind_is_refused() -> None:
    for pem in (b"", b"ssh-ed25519 AAAA", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"):
        with pytest.raises(SignatureRefused, match="no public key in PEM on the curve P-256"):
            load_tpm_key(pem)


def test_a_host_without_a_tpm_or_its_programs(tpm: SoftwareTpm, tmp_path: Path) -> None:
    if not Path("/dev/tpmrm0").exists():
        assert parse_quote(run_script("a" * 64, {"PATH": tpm.environment["PATH"]})) is None
    for program in ("sh", "base64", "cat"):
        (tmp_path / program).symlink_to(str(shutil.which(program)))
    with pytest.raises(QuoteFailed, match="tpm2-tools is not installed"):
        parse_quote(run_script("a" * 64, tpm.environment | {"PATH": str(tmp_path)}))
    with pytest.raises(QuoteFailed, match="tpm2_createprimary: "):
        parse_quote(run_script("a" * 64, tpm.environment | {"TPM2TOOLS_TCTI": f"swtpm:path={tmp_path}/none"}))


def test_the_verb_verifies_the_quote_of_the_newest_verdict(verdicts: Verdicts, tpm: SoftwareTpm) -> None:
    plain, path = verdicts.write("1", verdicts.details()), verdicts.write("2", quoted(verdicts, tpm))
    pem = verdicts.folder / "box.pem"
    pem.write_bytes(key_of(quoted(verdicts, tpm)))
    base = ["verify-verdict", "--signers", str(verdicts.folder / "signers")]
    done = CliRunner().invoke(main, [*base, "--tpm-key", str(pem), str(path)])
    assert (done.exit_code, "quote of a TPM: by SHA256:" in done.output) == (0, True), done.output
    done = CliRunner().invoke(main, [*base, "--tpm-key", str(pem), str(plain)])
    assert (done.exit_code, "refused (missing)" in done.output) == (2, True)
    assert (
        f"  register 7: {read_registers(quoted(verdicts, tpm))[7]}\n"
        in CliRunner().invoke(main, [*base, "--tpm-key", str(pem), str(path)]).output
    )
    for status, output in (verdicts.verify(path), (0, CliRunner().invoke(main, [*base, str(path)]).output)):
        assert (status, "quote of a TPM: NOT VERIFIED" in output) == (0, True)
    assert "TPM" not in verdicts.verify(plain)[1]


def test_the_key_of_a_tpm_counts_for_its_box_alone(verdicts: Verdicts, tpm: SoftwareTpm, make_tpm: Any) -> None:
    other = make_tpm()
    pems = {"box1": verdicts.folder / "one.pem", "box2": verdicts.folder / "two.pem"}
    for name, one in zip(pems, (tpm, other), strict=True):
        pems[name].write_bytes(key_of(quoted(verdicts, one)))
    # box2 lets box1's TPM quote its verdict
    first = verdicts.write("1", quoted(verdicts, tpm))
    lent = verdicts.write("2", quoted(verdicts, tpm, subject__name="box2"))
    right = verdicts.write("3", quoted(verdicts, other, subject__name="box2"))
    assert verdicts.details()["subject"]["name"] == "box1"
    base = ["verify-verdict", "--signers", str(verdicts.folder / "signers")]
    plain = [word for pem in pems.values() for word in ("--tpm-key", str(pem))]
    named = [word for name, pem in pems.items() for word in ("--tpm-key", f"{name}={pem}")]
    done = CliRunner().invoke(main, [*base, *plain, str(first), str(lent)])
    assert (done.exit_code, "name the box of each key" in done.output) == (2, True), done.output
    done = CliRunner().invoke(main, [*base, *named, str(first), str(lent)])
    assert (done.exit_code, "refused (unknown_signer)" in done.output) == (2, True), done.output
    done = CliRunner().invoke(main, [*base, *named, str(first), str(right)])
    assert (done.exit_code, done.output.count("quote of a TPM: by SHA256:")) == (0, 2), done.output
    done = CliRunner().invoke(main, [*base, "--tpm-key", f"box1={pems['box1']}.none", str(first)])
    assert (done.exit_code, "does not exist" in done.output) == (2, True), done.output


def test_changed_registers_of_a_chain_are_named(verdicts: Verdicts, make_tpm: Any) -> None:
    tpm = make_tpm()
    paths = [verdicts.write("1", quoted(verdicts, tpm))]
    for sequence in (2, 3, 4):
        if sequence == 3:
            for register in (4, 7):
                tpm.run("tpm2_pcrextend", f"{register}:sha256={'b' * 64}")
        paths.append(
            verdicts.write(str(sequence), quoted(verdicts, tpm, sequence=sequence, previous=digest(paths[-1])))
        )
    pem = verdicts.folder / "box.pem"
    pem.write_bytes(key_of(quoted(verdicts, tpm)))
    base = ["verify-verdict", "--signers", str(verdicts.folder / "signers"), "--tpm-key", str(pem)]
    done = CliRunner().invoke(main, [*base, *map(str, paths)])
    assert done.exit_code == 0, done.output
    assert [line for line in done.output.splitlines() if "CHANGED" in line] == [
        "  CHANGED between verdicts 2 and 3: register 4, 7"
    ]
