"""LiteLLM's proxy in front of the instances that a gateway is in front of: one worker, as it starts by itself."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import comparison_environments
from rigwright.project_root import ROOT

LOCK = ROOT / "locks" / "litellm.txt"
VENV = ROOT / ".venv-litellm"
PORT = 4000
START_LIMIT = 180  # seconds; it imports for ten to twenty


@dataclass(frozen=True)
class Proxy:
    """One that answers."""

    pid: int
    key: str
    """Its clients'; it begins with none."""

    @property
    def resident(self) -> int:
        """Bytes of memory that it has."""
        said = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        return 1024 * next(int(line.split()[1]) for line in said.splitlines() if line.startswith("Pss:"))


def prepare() -> str:
    """Have its environment; returns why there is none, or nothing."""
    try:
        comparison_environments.install(LOCK, VENV)
    except RuntimeError as error:
        return str(error).splitlines()[-1]
    return ""


def version() -> str:
    """Which one it is."""
    return comparison_environments.installed_version(VENV, "litellm")


@contextmanager
def proxy(folder: Path, served: Mapping[str, tuple[str, str]], inside: list[str]) -> Iterator[Proxy]:
    """It, while the block runs.

    Args:
        folder: For its settings and what it says.
        served: Name of a model -> where an engine is that has it, as `http://ADDRESS:PORT/v1`, and that one's key.
        inside: Words before its command line that have it run in the instances' own network.

    Raises:
        RuntimeError: it ends, or does not answer; its last words are the text.
    """
    models = [
        {"model_name": name, "litellm_params": {"model": f"openai/{name}", "api_base": base, "api_key": key}}
        for name, (base, key) in served.items()
    ]
    key = f"sk-{secrets.token_hex(32)}"
    settings = folder / "litellm.json"
    settings.touch(mode=0o600)
    # JSON is YAML, too
    settings.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": key}}))
    command = [str(VENV / "bin" / "litellm"), "--config", str(settings), "--host", "127.0.0.1", "--port", str(PORT)]
    # it has the files with it that it would ask the internet for at its start
    environment = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    said = folder / "litellm.log"
    with said.open("w") as log:
        process = subprocess.Popen([*inside, *command], stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        deadline = time.monotonic() + START_LIMIT
        lives = [*inside, "curl", "-sf", f"http://127.0.0.1:{PORT}/health/liveliness"]
        while subprocess.run(lives, capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"LiteLLM's proxy does not answer: {said.read_text()[-1500:]}")
            time.sleep(0.5)
        yield Proxy(process.pid, key)
    finally:
        # asked to end, it waits for its own connections, some of which never end
        process.kill()
        process.wait()
