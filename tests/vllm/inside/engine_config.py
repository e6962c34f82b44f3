"""The engine configuration that vLLM makes of command lines, on cards that are not there: JSON in, JSON out.

Each case is {"words": [...], "capability": "8.6", "cards": 2}, with "environment" where it has some; its verdict is
what vLLM says where it refuses, and "" where it would go on to load weights.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr
from importlib import import_module
from typing import Any

from lab.vllm_snapshot.stand_in_libcuda import load_stand_in

MEMORY = 24 << 30
"""Bytes of a card."""


def main() -> None:
    """Judge what comes in."""
    cases = json.load(sys.stdin)
    saved = os.dup(1)
    os.dup2(2, 1)
    judge = make_judge()
    verdicts = [judge(case) for case in cases]
    sys.stdout.flush()
    os.dup2(saved, 1)
    json.dump(verdicts, sys.stdout)


def make_judge() -> Any:
    """A function that judges one case."""
    load_stand_in()
    cuda, interface = import_module("vllm.platforms.cuda"), import_module("vllm.platforms.interface")
    case: dict[str, Any] = {}

    class Cards(cuda.NonNvmlCudaPlatform):  # type: ignore[name-defined]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            return interface.DeviceCapability(*map(int, case["capability"].split(".")))

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return "a card that is not there"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return MEMORY

        @classmethod
        def device_count(cls) -> int:
            return int(case["cards"])

    platforms, registry = import_module("vllm.platforms"), import_module("vllm.model_executor.models.registry")
    vars(platforms)["_current_platform"] = cards = Cards()
    for module in [*sys.modules.values()]:  # a module that was imported with it has found no card
        if module.__name__.startswith("vllm.") and "current_platform" in vars(module):
            vars(module)["current_platform"] = cards
    # it would ask about each model in a process of its own, 10 s each
    vars(registry)["_run_in_subprocess"] = lambda function: function()
    arguments = import_module("vllm.entrypoints.openai.cli_args")
    parser = arguments.make_arg_parser(import_module("vllm.utils.argparse_utils").FlexibleArgumentParser())
    engine = import_module("vllm.engine.arg_utils").AsyncEngineArgs
    server = import_module("vllm.usage.usage_lib").UsageContext.OPENAI_API_SERVER
    selector = import_module("vllm.v1.attention.selector").AttentionSelectorConfig

    def judge(given: dict[str, Any]) -> str:
        case.clear()
        case.update(given)
        before = dict(os.environ)
        os.environ |= given.get("environment", {})
        said = io.StringIO()
        try:
            with redirect_stderr(said):
                parsed = parser.parse_args(given["words"])
            arguments.validate_parsed_serve_args(parsed)
            parsed.model = parsed.model_tag  # as vllm/entrypoints/cli/serve.py has it
            config = engine.from_cli_args(parsed).create_engine_config(server)
            # a worker's first steps (vllm/v1/worker/gpu_worker.py, vllm/v1/attention/selector.py)
            cards.check_if_supports_dtype(config.model_config.dtype)
            attention = selector(
                config.model_config.get_head_size(), config.model_config.dtype, config.cache_config.cache_dtype, None
            )
            cards.get_attn_backend_cls(config.attention_config.backend, attention)
        except SystemExit:
            return "the parser: " + said.getvalue().strip().rpartition("\n")[2]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            os.environ.clear()
            os.environ |= before
        return ""

    return judge


if __name__ == "__main__":
    main()
