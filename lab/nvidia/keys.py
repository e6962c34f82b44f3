"""Keys that sign stand-in archives: sound ones, and such that apt has to refuse."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import machine
from lab.nvidia.deb import put

# gpg needs its agent for whatever has a secret in it
PROGRAMS = {"gpg": "gnupg", "gpg-agent": "gpg-agent", "gpgconf": "gnupg", "dpkg-deb": "dpkg"}
# A key that ended long ago was made and used before that.
PAST = "20200101T120000!"


@dataclass(frozen=True)
class Key:
    """A key with its secret, in a folder of its own."""

    home: Path
    fingerprint: str
    public: str
    """The armoured public key."""
    expired: bool = False

    @classmethod
    def make(cls, folder: Path, *, algorithm: str = "rsa2048", expired: bool = False, sha1: bool = False) -> Key:
        """Make one. Each has another fingerprint.

        Args:
            folder: Must not be there.
            algorithm: As gpg's --quick-generate-key names it: rsa2048, ed25519.
            expired: Whether it was good in 2020 for a day only.
            sha1: Whether it signs itself with SHA-1, which the apt of Debian 13 refuses.

        Raises:
            RuntimeError: gpg fails.
            lab.machine.Unsupported: there is no gpg here, and none can be installed.
        """
        machine.install(PROGRAMS)
        folder.mkdir(parents=True, mode=0o700)
        options = [
            *(["--cert-digest-algo", "SHA1"] if sha1 else []),
            *(["--faked-system-time", PAST] if expired else []),
        ]
        who = "cudatools <cudatools@lab.invalid>"
        with _home(folder) as home:
            make = ["--passphrase", "", "--quick-generate-key", who, algorithm, "sign", "1d" if expired else "never"]
            _gpg(home, *options, *make)
            listed = _gpg(home, "--with-colons", "--list-keys").decode()
            fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
            return cls(folder, fingerprint, _gpg(home, "--armor", "--export").decode(), expired)

    def clearsign(self, text: str) -> bytes:
        """The text and its signature, as an InRelease file has them.

        Raises:
            RuntimeError: gpg fails.
        """
        options = ["--faked-system-time", PAST] if self.expired else []
        with _home(self.home) as home:
            put(home / "text", text)
            return _gpg(home, *options, "--digest-algo", "SHA512", "--output", "-", "--clearsign", str(home / "text"))

    def detached(self, text: str) -> bytes:
        """The signature alone, as a Release.gpg file has it.

        Raises:
            RuntimeError: gpg fails.
        """
        options = ["--faked-system-time", PAST] if self.expired else []
        with _home(self.home) as home:
            put(home / "text", text)
            return _gpg(home, *options, "--digest-algo", "SHA512", "--armor", "--output", "-", "-b", str(home / "text"))


@contextmanager
def _home(folder: Path) -> Iterator[Path]:
    """A copy with a short path, where the agent's socket fits in; what was made there goes back."""
    with tempfile.TemporaryDirectory(prefix="gpg") as temporary:
        home = Path(temporary)
        shutil.copytree(folder, home, dirs_exist_ok=True)
        try:
            yield home
        finally:
            subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True, check=False)
        for name in ("text", "pubring.kbx~", ".#lk*", "S.*", "*.lock"):
            for path in home.glob(name):
                path.unlink()
        shutil.copytree(home, folder, dirs_exist_ok=True)


def _gpg(home: Path, *words: str) -> bytes:
    fixed = ["gpg", "--batch", "--quiet", "--yes", "--no-tty", "--pinentry-mode", "loopback", "--homedir", str(home)]
    done = subprocess.run([*fixed, *words], capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gpg {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout
