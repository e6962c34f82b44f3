"""Keys that sign stand-in archives: sound ones, and such that apt has to refuse."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import machine_requirements
from tests.stand_ins.nvidia.debian_packages import write_file

# gpg needs its agent for whatever has a secret in it
PROGRAMS = {"gpg": "gnupg", "gpg-agent": "gpg-agent", "gpgconf": "gnupg", "dpkg-deb": "dpkg"}
# The dates of a key that has ended: its making, and its end. It signs today nevertheless: the apt of Debian 13 still
# takes a signature that an ended key made in its time.
MADE, ENDED = "20200101T120000!", "20200102T120000!"


@dataclass(frozen=True)
class SigningKey:
    """A key with its secret, in a folder of its own."""

    home: Path
    fingerprint: str
    public: str
    """The armoured public key."""

    @classmethod
    def generate_key(
        cls, folder: Path, *, algorithm: str = "rsa2048", expired: bool = False, sha1: bool = False
    ) -> SigningKey:
        """Make one. Each has another fingerprint.

        Args:
            folder: Must not be there.
            algorithm: As gpg's --quick-generate-key names it: rsa2048, ed25519.
            expired: Whether it ended in 2020.
            sha1: Whether it signs itself with SHA-1, which the apt of Debian 13 refuses.

        Raises:
            RuntimeError: gpg fails.
            lab.machine_requirements.UnsupportedMachine: there is no gpg here, and none can be installed.
        """
        machine_requirements.install_programs(PROGRAMS)
        folder.mkdir(parents=True, mode=0o700)
        options = ["--cert-digest-algo", "SHA1"] if sha1 else []
        options += ["--faked-system-time", MADE] if expired else []
        who = "cudatools <cudatools@lab.invalid>"
        with _short_home(folder, keep=True) as home:
            _run_gpg(home, *options, "--passphrase", "", "--quick-generate-key", who, algorithm, "sign", "never")
            listed = _run_gpg(home, "--with-colons", "--list-keys").decode()
            fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
            public = _run_gpg(home, "--armor", "--export")
        if expired:
            with _short_home(folder) as home:
                _run_gpg(
                    home, "--faked-system-time", ENDED, "--passphrase", "", "--quick-set-expire", fingerprint, "1d"
                )
                public = _run_gpg(home, "--armor", "--export-options", "export-minimal", "--export")
        return cls(folder, fingerprint, public.decode())

    def sign_inline(self, text: str) -> bytes:
        """The text and its signature, as an InRelease file has them.

        Raises:
            RuntimeError: gpg fails.
        """
        return self._run_signing(text, "--clearsign")

    def sign_detached(self, text: str) -> bytes:
        """The signature alone, as a Release.gpg file has it.

        Raises:
            RuntimeError: gpg fails.
        """
        return self._run_signing(text, "--armor", "--detach-sign")

    def _run_signing(self, text: str, *how: str) -> bytes:
        with _short_home(self.home) as home:
            write_file(home / "text", text)
            return _run_gpg(home, "--digest-algo", "SHA512", "--output", "-", *how, str(home / "text"))


@contextmanager
def _short_home(folder: Path, *, keep: bool = False) -> Iterator[Path]:
    """A copy with a short path, where the agent's socket fits in; files made there are forgotten, or go back."""
    with tempfile.TemporaryDirectory(prefix="gpg") as temporary:
        home = Path(temporary)
        shutil.copytree(folder, home, dirs_exist_ok=True)
        try:
            yield home
        finally:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)
        if keep:
            unwanted = shutil.ignore_patterns("S.*", "*.lock", ".#lk*")
            shutil.copytree(home, folder, dirs_exist_ok=True, ignore=unwanted)


def _run_gpg(home: Path, *words: str) -> bytes:
    fixed = ["gpg", "--batch", "--quiet", "--yes", "--no-tty", "--pinentry-mode", "loopback", "--homedir", str(home)]
    done = subprocess.run([*fixed, *words], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gpg {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout
