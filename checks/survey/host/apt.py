"""The package sources of a host's apt, read without it; whether it can read one file of those; and its offers."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from checks.survey.host import common

ROOT = ""  # a test has a folder for a host
UPDATE_LIMIT = 60.0  # s
LIMIT = 45.0  # s; it makes its cache anew where a source has changed, which takes long on a busy host
# apt-cache(8), policy: a block each, with a table of versions, of which each has the sources below it
HEAD = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9-]+)?:")
FIELD = re.compile(r"  (Installed|Candidate|Version table):(?: (\S+))?")
VERSION = re.compile(r" (\*\*\*|   ) ([0-9]\S*) -?[0-9]+(?: \(phased [0-9]+%\))?")
FIELDS = ("Installed", "Candidate", "Version table")
SOURCE = re.compile(r" {5,}-?[0-9]+ (\S.*)")
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


class AptVersion(NamedTuple):
    """A version of a package that apt knows."""

    version: str
    sources: list[str]


class Policy(NamedTuple):
    """A package, as apt has it."""

    installed: str
    """Its version; empty without one."""
    candidate: str
    """The version that apt would install; empty for nothing."""
    offers: list[AptVersion]
    """The newest first."""

    @property
    def above(self) -> list[AptVersion]:
        """Those that are newer than the installed one; all, without one."""
        versions = [one.version for one in self.offers]
        return self.offers[: versions.index(self.installed)] if self.installed else self.offers


def read_policies(names: Sequence[str]) -> dict[str, Policy]:
    """Package -> what apt has of it, of those of these that it knows.

    Raises:
        RuntimeError: apt-cache fails, or does not tell all of one.
    """
    return parse_policies(common.run("apt-cache", "policy", "--", *names, limit=LIMIT), names) if names else {}


def parse_policies(text: str, names: Sequence[str]) -> dict[str, Policy]:
    """The same from the output of `apt-cache policy`; other lines are ignored.

    Raises:
        RuntimeError: a line of one is lost: the next ones would be another package's.
    """
    found: dict[str, Policy] = {}
    fields: dict[str, str] = {}
    marked, offers, name = "", list[AptVersion](), ""

    def end() -> None:
        if not name:
            return
        installed, candidate = (fields.get(key, "").replace("(none)", "") for key in ("Installed", "Candidate"))
        versions = {one.version for one in offers}
        lost = set(FIELDS) - set(fields) or not {installed, candidate} - {""} <= versions or marked != installed
        row = Policy(installed, candidate, offers)
        if lost or any(not one.sources for one in offers) or found.setdefault(name, row) != row:
            raise RuntimeError(f"apt-cache does not tell all of {name}")

    for line in common.lines(text):
        if (matched := HEAD.fullmatch(line)) and matched[1] in names:
            end()
            name, fields, marked, offers = matched[1], {}, "", []
        elif matched := FIELD.fullmatch(line):
            if not name or matched[1] in fields:
                raise RuntimeError("apt-cache does not name a package")
            fields[matched[1]] = matched[2] or ""
        elif matched := VERSION.fullmatch(line):
            marked = matched[2] if matched[1] == "***" else marked
            if not offers or offers[-1] != (matched[2], []):
                offers.append(AptVersion(matched[2], []))
        elif (matched := SOURCE.fullmatch(line)) and offers:
            offers[-1].sources.append(matched[1])
    end()
    return found


def sources() -> list[str]:
    """Files of apt's sources."""
    patterns = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources")
    return [path.removeprefix(ROOT) for pattern in patterns for path in sorted(glob.glob(f"{ROOT}{pattern}"))]


def release() -> dict[str, str]:
    """The distribution's own name."""
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
            status, out, err = common.ended("apt-get", "-q", "-c", f"{own}/apt.conf", "update", limit=UPDATE_LIMIT)
        except subprocess.TimeoutExpired:
            status, out, err = 124, "", ""
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return {"source": source, "status": status, "said": out + err}
