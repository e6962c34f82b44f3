"""Plugins of engines, made by tests: the shape of a real one, an operator's own wheel, and a few lines in it."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping

NAME, MODULE = "louder-plugin", "louder_plugin"
COMMANDS = ("louder-serve", "louder-doctor")


def wheel(
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    *,
    name: str = NAME,
    commands: Iterable[str] = COMMANDS,
    requires: Iterable[str] = (),
    listed: Mapping[str, str] | None = None,
    links: Iterable[str] = (),
) -> bytes:
    """A plugin's wheel.

    Args:
        version: Its own.
        files: Path in it -> text; a module that does nothing without.
        name: The distribution's.
        commands: Programs that it brings; each is `main` of its module.
        requires: What its metadata says that it needs.
        listed: Path -> text that its list has in the place of what is there.
        links: Paths that lie there as links.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    given = dict({f"{MODULE}/__init__.py": "def main():\n    print('louder')\n"} if files is None else files)
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    given[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    given[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    points = "".join(f"{command} = {MODULE}:main\n" for command in commands)
    given[f"{info}/entry_points.txt"] = f"[console_scripts]\n{points}"
    said = {**given, **(listed or {})}
    rows = "".join(f"{path},sha256={_encoded(text)},{len(text)}\n" for path, text in said.items())
    return zipped({**given, f"{info}/RECORD": f"{rows}{info}/RECORD,,\n"}, links)


def zipped(files: Mapping[str, str | bytes], links: Iterable[str] = ()) -> bytes:
    """A zip of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for path, content in files.items():
            one = zipfile.ZipInfo(path)
            one.external_attr = (0o120777 if path in links else 0o100644) << 16
            made.writestr(one, content)
    return buffer.getvalue()


def file_name(version: str = "1.0") -> str:
    """What its wheel is called."""
    return f"{MODULE}-{version}-py3-none-any.whl"


def released(version: str = "1.0", **changes: object) -> bytes:
    """The zip that an operator is given: the wheel in `dist/`, and a page about it."""
    top = f"louder-v{version}"
    return zipped({f"{top}/README.md": "# Louder\n", f"{top}/dist/{file_name(version)}": wheel(version, **changes)})  # type: ignore[arg-type] # of wheel()


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
