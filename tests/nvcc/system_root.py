"""A folder with another system's files, and commands in it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

PATCH = "nvcc-rsqrt-glibc"
SITE = "/opt/cuda/site"
"""Where the wheels of the CUDA toolkit are installed in it."""
TOOLKIT = f"{SITE}/nvidia/cu13"
NVCC = f"{TOOLKIT}/bin/nvcc"
SECONDS = 1800.0
"""One command: compiling llama.cpp's smallest file for three architectures takes 30 s on two idle cores."""


@dataclass(frozen=True)
class SystemRoot:
    """A system's files below one folder."""

    top: Path
    unpatched: str = ""
    """The output of nvcc for a file, before the toolkit has its patch."""

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, without this machine's environment."""
        words = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", **variables}
        environment = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in words.items())]
        return subprocess.run(
            ["nice", "chroot", str(self.top), *environment, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def output(self, *command: str, **variables: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*command, **variables)
        assert done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Put a file into it."""
        place = self.top / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
