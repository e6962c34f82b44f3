"""A package index on the loopback interface, in the form of PEP 503 (HTML) or PEP 691 (JSON)."""

import hashlib
import html
import io
import json
import zipfile
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

from tests.unit.file_server import LoopbackFileServer, complete_file, rangeless_file


@dataclass
class ProjectFile:
    """One file of a project."""

    file: str
    content: bytes
    yanked: str | None = None
    digest: str | None = None
    sized: bool = True
    uploaded: str | None = "2026-01-01T00:00:00Z"

    @property
    def sha256(self) -> str:
        """The index's own hash; "" for nothing."""
        return hashlib.sha256(self.content).hexdigest() if self.digest is None else self.digest


@dataclass
class LoopbackPackageIndex:
    """Projects and their files, on a file server."""

    files: LoopbackFileServer
    form: str
    projects: dict[str, dict[str, ProjectFile]] = field(default_factory=dict)
    status: dict[str, dict[str, str]] = field(default_factory=dict)
    """Project -> facts about it as a whole."""

    @property
    def url(self) -> str:
        """The arguments of pip."""
        return f"{self.files.url}/simple/"

    def add(self, project: str, package: ProjectFile) -> ProjectFile:
        """Publish a file, or publish it anew."""
        self.projects.setdefault(project, {})[package.file] = package
        self.files.serve(f"files/{package.file}", rangeless_file(package.content))
        self.publish_project(project)
        return package

    def remove(self, project: str, file: str) -> None:
        """Take a file away."""
        del self.projects[project][file]
        self.publish_project(project)

    def publish_project(self, project: str) -> None:
        """Answer with what a project has now."""
        packages = list(self.projects[project].values())
        kind, body = (
            _render_page(project, packages, self.status.get(project))
            if self.form == "json"
            else _render_links(packages)
        )
        self.files.serve(f"simple/{project}/", complete_file(body.encode(), ("Content-Type", kind)))

    def publish_wheel(
        self, project: str, version: str, *needs: str, tag: str = "py3-none-any", yanked: str | None = None, **more: str
    ) -> ProjectFile:
        """Publish a wheel that needs other packages."""
        content = _wheel_bytes(project, version, needs)
        return self.add(project, ProjectFile(f"{project}-{version}-{tag}.whl", content, yanked, **more))  # type: ignore[arg-type]

    def publish_source(self, project: str, version: str, **changes: object) -> ProjectFile:
        """Publish a source distribution."""
        package = ProjectFile(f"{project}-{version}.tar.gz", f"source of {project} {version}".encode(), **changes)  # type: ignore[arg-type]
        return self.add(project, package)


def _render_page(project: str, packages: list[ProjectFile], status: dict[str, str] | None) -> tuple[str, str]:
    files = [
        {
            "filename": one.file,
            "url": f"../../files/{one.file}",
            "hashes": {"sha256": one.sha256} if one.sha256 else {},
            "yanked": one.yanked if one.yanked else False,
        }
        | ({"size": len(one.content)} if one.sized else {})
        | ({"upload-time": one.uploaded} if one.sized and one.uploaded else {})
        for one in packages
    ]
    page = {"meta": {"api-version": "1.1" if all(one.sized for one in packages) else "1.0"}, "name": project}
    if status:
        page |= {"project-status": status, "meta": {"api-version": "1.4"}}
    return "application/vnd.pypi.simple.v1+json", json.dumps(page | {"files": files, "versions": []})


def _render_links(packages: list[ProjectFile]) -> tuple[str, str]:
    lines = []
    for one in packages:
        yanked = f' data-yanked="{html.escape(one.yanked)}"' if one.yanked else ""
        fragment = f"#sha256={one.sha256}" if one.sha256 else ""
        lines.append(f'<a href="../../files/{one.file}{fragment}"{yanked}>{one.file}</a>')
    return "text/html", f"<!DOCTYPE html><html><body>{''.join(lines)}</body></html>"


def _record_digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _wheel_bytes(project: str, version: str, needs: tuple[str, ...]) -> bytes:
    info = f"{project}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    content = {f"{info}/METADATA": metadata, f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n"}
    rows = "".join(f"{path},sha256={_record_digest(text)},{len(text)}\n" for path, text in content.items())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in (content | {f"{info}/RECORD": f"{rows}{info}/RECORD,,\n"}).items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return buffer.getvalue()
