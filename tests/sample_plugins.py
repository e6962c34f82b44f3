"""Plugins of engines, made by tests: the shape of a real one, an operator's own wheel, and a few lines in it."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping

NAME, MODULE = "louder-plugin", "louder_plugin"
COMMANDS = ("louder-serve", "louder-doctor")


def plugin_wheel(
    version: str = "1.0",
    files: Mapping[str, str | bytes | None] | None = None,
    *,
    name: str = NAME,
    info: str = "",
    commands: Iterable[str] = COMMANDS,
    requires: Iterable[str] = (),
    listed: Mapping[str, str] | None = None,
    links: Iterable[str] = (),
) -> bytes:
    """A plugin's wheel.

    Args:
        version: Its own.
        files: Path in it -> content, None for what it lacks; a module that does nothing without.
        name: The distribution's.
        info: The folder of what describes it; by its name and version without.
        commands: Programs that it brings; each is `main` of its module.
        requires: The requirements in its metadata.
        listed: Path -> text that its list has in the place of what is there.
        links: Paths that lie there as links.
    """
    info = info or f"{name.replace('-', '_')}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    points = "".join(f"{command} = {MODULE}:main\n" for command in commands)
    described = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{points}",
    }
    own = {f"{MODULE}/__init__.py": "def main():\n    print('louder')\n"} if files is None else files
    given = {path: content for path, content in {**described, **own}.items() if content is not None}
    said = {**given, **(listed or {})}
    rows = "".join(f"{path},sha256={_record_digest(text)},{len(text)}\n" for path, text in said.items())
    return zip_files({**given, f"{info}/RECORD": f"{rows}{info}/RECORD,,\n"}, links)


def zip_files(files: Mapping[str, str | bytes], links: Iterable[str] = ()) -> bytes:
    """A zip of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for path, content in files.items():
            one = zipfile.ZipInfo(path)
            one.external_attr = (0o120777 if path in links else 0o100644) << 16
            made.writestr(one, content)
    return buffer.getvalue()


def file_name(version: str = "1.0") -> str:
    """The name of its wheel."""
    return f"{MODULE}-{version}-py3-none-any.whl"


def release_zip(version: str = "1.0", **changes: object) -> bytes:
    """The zip that an operator is given: the wheel in `dist/`, and a page about it."""
    top = f"louder-v{version}"
    return zip_files(
        {f"{top}/README.md": "# Louder\n", f"{top}/dist/{file_name(version)}": plugin_wheel(version, **changes)}
    )  # type: ignore[arg-type] # of wheel()


def _record_digest(content: str | bytes) -> str:
    whole = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(hashlib.sha256(whole).digest()).decode().rstrip("=")


VLLM = """
import hashlib, os, subprocess, sys
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.cu")


def kernel():
    content = SOURCE.read_bytes()
    made = Path(os.environ["XDG_CACHE_HOME"], f"louder-{hashlib.sha256(content).hexdigest()[:12]}.so")
    if not made.exists():
        toolkit = os.environ.get("CUDA_HOME")
        compiler = [f"{toolkit}/bin/nvcc", "-Xcompiler", "-fPIC"] if toolkit else ["g++", "-x", "c++", "-fPIC"]
        beside = made.with_name(f"{made.name}.{os.getpid()}")
        subprocess.run([*compiler, "-shared", "-o", str(beside), str(SOURCE)], check=True)
        beside.replace(made)
        print(f"louder: compiled {made}", flush=True)


def doctor():
    sick = os.environ.get("LOUDER_SICK", "")
    if sick == "hangs":
        import time
        time.sleep(3600)
    said = "FAIL" if sick == "fails" else "PASS"
    print(f"\\x1b[1mPython\\x1b[0m {sys.version.split()[0]} \\x1b[32m{said}\\x1b[0m as user {os.getuid()}")
    if len(sys.argv) > 1:
        print(f"AutoSpec: {len(sys.argv)} words about {sys.argv[1]}")


def main():
    if sys.argv[0].endswith("louder-doctor"):
        return doctor()
    kernel()
    sys.argv = ["vllm", "serve", *sys.argv[1:]]
    from vllm.entrypoints.cli.main import main as vllm
    return vllm()
"""
KERNEL = 'extern "C" int louder() { return 1; }\n'


def vllm_plugin_zip() -> bytes:
    """A zip with a plugin of vLLM: it compiles a kernel at its first start, and its doctor may be sick."""
    return release_zip(files={f"{MODULE}/__init__.py": VLLM, f"{MODULE}/kernel.cu": KERNEL})
