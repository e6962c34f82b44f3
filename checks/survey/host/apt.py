"""What a host's apt reads packages from, read without it; and whether it can read one file of that."""

from __future__ import annotations

import glob
import os
import subprocess

from checks.survey.host import common

ROOT = ""  # a test has a folder for a host
LIMIT = 60.0  # s
CONF = """\
#clear APT::Update;
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{own}/parts";
Dir::State::Lists "{own}/lists";
Dir::Cache "{own}/cache";
Acquire::Languages "none";
Acquire::Retries "0";
Acquire::http::Timeout "8";
Acquire::https::Timeout "8";
"""


def sources() -> list[str]:
    """Files of apt's sources."""
    patterns = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")
    return [path.removeprefix(ROOT) for pattern in patterns for path in sorted(glob.glob(f"{ROOT}{pattern}"))]


def release() -> dict[str, str]:
    """What the distribution calls itself."""
    rows = (line.partition("=") for line in common.lines(common.read(f"{ROOT}/etc/os-release") or ""))
    values = {key: value.strip("\"'") for key, _, value in rows}
    return {
        "os_id": values.get("ID", ""),
        "os_version": values.get("VERSION_ID", ""),
        "architecture": os.uname().machine,
    }


def update(source: str, asked: dict[str, str]) -> dict[str, object]:
    """The same of one file; nothing where it is not there."""
    if not os.path.isfile(f"{ROOT}{source}"):
        return {"source": "", "status": 0, "said": ""}
    import shutil  # takes its time, and few need it
    import tempfile

    own = tempfile.mkdtemp(dir="/tmp")
    try:
        os.chmod(own, 0o755)  # noqa: S103 # apt fetches as a user of its own
        for name in ("parts", "lists", "cache"):
            os.mkdir(f"{own}/{name}")
        shutil.copy(f"{ROOT}{source}", f"{own}/parts/")
        conf = CONF.format(own=own)
        if asked["authority"]:
            bundle = (common.read("/etc/ssl/certs/ca-certificates.crt", most=64 << 20) or "") + (
                common.read(asked["authority"]) or ""
            )
            with open(f"{own}/ca.pem", "w") as file:
                file.write(bundle)
            conf += f'Acquire::https::CaInfo "{own}/ca.pem";\n'
        with open(f"{own}/apt.conf", "w") as file:
            file.write(conf)
        if asked["proxy"]:
            os.environ.update(http_proxy=asked["proxy"], https_proxy=asked["proxy"], no_proxy=asked["none"])
        try:
            status, out, err = common.ended("apt-get", "-q", "-c", f"{own}/apt.conf", "update", limit=LIMIT)
        except subprocess.TimeoutExpired:
            status, out, err = 124, "", ""
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return {"source": source, "status": status, "said": out + err}
