"""Whether apt can read and verify the sources of one file, with nothing of the host's own lists touched."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile

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


def others() -> list[str]:
    """An operator's own files that name NVIDIA's archive."""
    paths = [f"{ROOT}/etc/apt/sources.list", *sorted(glob.glob(f"{ROOT}/etc/apt/sources.list.d/*"))]
    return [path.removeprefix(ROOT) for path in paths if "/cuda/repos/" in (common.read(path) or "")]


def look(asked: dict[str, str]) -> dict[str, object]:
    """What an update of apt's ends with and prints; nothing where there are no such sources.

    Args:
        asked: `source`, the file, where an operator's own may stand in for it; `authority`, a file of certificates, or
            nothing; `proxy` and `none`, as curl has them.
    """
    source = next((path for path in [asked["source"], *others()] if os.path.isfile(f"{ROOT}{path}")), "")
    if not source:
        return {"source": "", "status": 0, "said": ""}
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
