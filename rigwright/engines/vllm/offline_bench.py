"""How vLLM's own offline benches are run for an instance: `vllm bench throughput` and `vllm bench latency`."""

from __future__ import annotations

from pathlib import Path

from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.offline_bench import OfflineBench, OfflineBenchSpec
from rigwright.engines.vllm import plugin_launch
from rigwright.engines.vllm.offline_bench_program import SAID
from rigwright.model.instance import Instance

PROGRAM = Path(__file__).with_name("offline_bench_program.py").read_text()
WARM_UP = 3  # batches before those that are measured


def plan_offline_bench(instance: Instance, service: ServiceSpec, wanted: OfflineBenchSpec) -> OfflineBench | None:
    """The bench; None where a plugin starts the engine, which the bench would leave out.

    Args:
        instance: The instance.
        service: How it is served.
        wanted: The measurement.
    """
    if plugin_launch.find_launch_plugin(instance):
        return None
    model, *options = service.asked
    words = [wanted.what, f"--model={model}", *options]
    if wanted.what == "throughput":
        # without the word, its random prompts have lengths of their own, whatever else is asked for
        words += [f"--random-input-len={wanted.input_tokens}", f"--random-output-len={wanted.output_tokens}"]
        words += ["--dataset-name=random", f"--num-prompts={wanted.requests}"]
    else:
        words += [f"--input-len={wanted.input_tokens}", f"--output-len={wanted.output_tokens}"]
        words += [f"--batch-size={wanted.requests}", f"--num-iters={wanted.repeats}", f"--num-iters-warmup={WARM_UP}"]
    return OfflineBench((service.command[0], "-I", "-", *words), PROGRAM, SAID)
