"""Small wheels that tests make: real archives, each with its own list."""

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

EMPTY: Mapping[str, str] = {}


def write_wheel(
    folder: Path,
    name: str,
    files: Mapping[str, str] = EMPTY,
    requires: Iterable[str] = (),
    programs: Iterable[str] = (),
    version: str = "1.0",
) -> Path:
    """Write a wheel.

    Args:
        folder: Where it comes to lie.
        name: Its distribution.
        files: Path in it -> text, beside a module of its own name.
        requires: Its requirements.
        programs: Its console scripts.
        version: Its version.
    """
    plain = name.replace("-", "_")
    info = f"{plain}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    content = {
        f"{plain}/__init__.py": "",
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if points := "".join(f"{one} = {plain}:main\n" for one in programs):
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{points}"
    digests = {path: hashlib.sha256(text.encode()).digest() for path, text in content.items()}
    encoded = {path: base64.urlsafe_b64encode(one).rstrip(b"=").decode() for path, one in digests.items()}
    rows = "".join(f"{path},sha256={one},{len(content[path])}\n" for path, one in encoded.items())
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_, text in (content | {f"{info}/RECORD": f"{rows}{info}/RECORD,,\n"}).items():
            archive.writestr(name_, text)
    return path
