"""A line of a log for each known cause, by what prints it: vLLM, llama.cpp, the image engine or the kernel."""

from pathlib import Path

from rigwright.toml import tomllib

CAPTURE = Path(__file__).with_name("captures") / "log-causes.toml"
SAMPLES: dict[str, dict[str, str]] = tomllib.loads(CAPTURE.read_text())
