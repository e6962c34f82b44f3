"""The package index: projects, their files, and what it says of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from email.message import Message

import requests
from bs4.exceptions import ParserRejectedMarkup
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DistributionPackage,
    ProjectPage,
    PyPISimple,
    UnsupportedRepoVersionError,
)

from cli.lock_resolver import downloads
from cli.lock_resolver.downloads import DownloadUnavailable, FileContent
from roles.weights.host.simple import HTML, JSON

MOST = 16 << 20  # bytes of a page; those of the projects with most files have half of it
UNREADABLE = (
    UnsupportedRepoVersionError,
    ParserRejectedMarkup,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""The errors of an answer that is no page: the client's own readers hand on those below them."""


def index_url() -> str:
    """The index that pip is configured to use: PIP_INDEX_URL, pip's configuration, or the public one."""
    if given := os.environ.get("PIP_INDEX_URL"):
        return given
    # not `pip config get`: that reads a single one of pip's files
    arguments = ["-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = ""
    # environments of uv have no pip: the machine's has the same configuration
    for python in (sys.executable, "/usr/bin/python3"):
        with suppress(OSError):
            done = subprocess.run([python, *arguments], capture_output=True, text=True, check=False)
            listed = listed or done.stdout
    configured = re.search(r"(?m)^global\.index-url='(.+)'$", listed)
    return configured[1] if configured else PYPI_SIMPLE_ENDPOINT


class PackageIndex:
    """A package index that speaks PEP 503 or PEP 691."""

    def __init__(self, session: requests.Session, url: str) -> None:
        self.session = session
        self.url = url
        self.client = PyPISimple(url, session=session)
        self._pages: dict[str, ProjectPage] = {}

    def project_page(self, project: str) -> ProjectPage:
        """The index's page of a project; asked once.

        Raises:
            DownloadUnavailable: it has no such project, or does not answer.
        """
        if project not in self._pages:
            self._pages[project] = self._fetch_page(project)
        return self._pages[project]

    def _fetch_page(self, project: str) -> ProjectPage:
        # not the client's own way, which takes a page of any size
        asked = {"Accept": self.client.accept}
        url = self.client.get_project_url(project)
        try:
            with self.session.get(url, stream=True, headers=asked, timeout=downloads.TIMEOUT) as answer:
                if answer.status_code == 404:
                    raise DownloadUnavailable(f"the index has no project {project}", gone=True)
                answer.raise_for_status()
                return _parse_page(project, answer)
        # some of these are ValueErrors, too
        except requests.RequestException as error:
            raise DownloadUnavailable(f"the index {downloads.describe_failure(error)}") from None
        except UNREADABLE:
            raise DownloadUnavailable(f"the index does not answer with a file list for {project}") from None

    def source_distribution(self, project: str, version: str) -> DistributionPackage:
        """The source distribution of a version.

        Raises:
            DownloadUnavailable: there is none, it was withdrawn, or the index does not answer.
        """
        found = [
            one
            for one in self.project_page(project).packages
            if one.package_type == "sdist" and _has_version(one, version)
        ]
        if not found:
            newest = newest_source(self.project_page(project).packages)
            raise DownloadUnavailable(
                f"the index has no source of {project} {version}; the newest is {newest or 'none'}", True
            )
        best = min(found, key=lambda one: (not one.filename.endswith(".tar.gz"), one.filename))
        if best.is_yanked:
            why = f": {best.yanked_reason}" if best.yanked_reason else ""
            raise DownloadUnavailable(f"{best.filename} was yanked from the index{why}", gone=True)
        return best

    def version_wheels(self, project: str, version: str) -> list[DistributionPackage]:
        """The wheels of a version, withdrawn ones too.

        Raises:
            DownloadUnavailable: the index has no such project, or does not answer.
        """
        return [
            one
            for one in self.project_page(project).packages
            if one.package_type == "wheel" and _has_version(one, version)
        ]

    def file_content(self, package: DistributionPackage) -> FileContent:
        """A file's hash and size: the index's own, or where it says none, its server's or that of its bytes.

        Raises:
            DownloadUnavailable: its server does not have it, or does not answer.
        """
        digest = package.digests.get("sha256")
        try:
            if digest:
                size = package.size or downloads.read_file_facts(self.session, package.url).size
                if size:
                    return FileContent(digest, size)
            got = downloads.fetch_file(self.session, package.url, lambda done, total: None)
        except DownloadUnavailable as error:
            raise DownloadUnavailable(f"{package.filename}: its server {error}", error.gone) from None
        if digest not in (None, got.sha256):
            raise DownloadUnavailable(f"{package.filename}: its bytes do not match the index's hash")
        return got


def _parse_page(project: str, answer: requests.Response) -> ProjectPage:
    """Parse an answer about a project; any other text raises one of UNREADABLE."""
    header = Message()
    header["Content-Type"] = answer.headers.get("Content-Type", "text/html")
    kind, content = header.get_content_type(), downloads.read_body(answer, MOST)
    if kind == JSON:
        return ProjectPage.from_json_data(json.loads(content), answer.url)
    if kind in HTML:
        return ProjectPage.from_html(project, content, answer.url, header.get_content_charset())
    raise ValueError(kind)


def newest_source(packages: Iterable[DistributionPackage]) -> str:
    """The newest version with a source distribution, pre-releases and withdrawn ones aside; "" without one."""
    found = [
        version
        for one in packages
        if one.package_type == "sdist"
        and not one.is_yanked
        and (version := parse_version(one))
        and not version.is_prerelease
    ]
    return str(max(found)) if found else ""


def parse_version(package: DistributionPackage) -> Version | None:
    """The version of a file of an index; None for an invalid one."""
    try:
        return Version(package.version or "")
    except InvalidVersion:
        return None


def _has_version(package: DistributionPackage, version: str) -> bool:
    return parse_version(package) == Version(version)
