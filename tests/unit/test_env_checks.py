"""The checks of environments that no box of the lab turns red: those for cards, and for their driver."""

import pytest

from checks import test_envs
from checks.survey.answers import SurveyAnswers
from rigwright.model.instance import EnvSpec
from rigwright.nvidia.cards.smi import GPUS
from tests.unit.check_runner import red_checks
from tests.unit.env_samples import declared_env, env_installation
from tests.unit.samples import sample_card, sample_rig, sample_wheel

FIELDS = next(word for word in GPUS if word.startswith("--query-gpu=")).partition("=")[2].split(",")
CUDA = sample_wheel("nvidia-cuda-runtime", version="13.0.96", group="pk")
COMPILED = sample_wheel("kernels", group="pk", machine_code=("k/_C.so sm_80 sm_86",))


def survey(driver: str) -> SurveyAnswers:
    """Of a host whose one card has this driver."""
    known = {"index": "0", "pci.bus_id": "00000000:01:00.0", "uuid": "GPU-1", "driver_version": driver}
    said = ", ".join(known.get(field, "[N/A]") for field in FIELDS) + "\n"
    told = {"answers": {"gpus": {"status": 0, "out": said, "err": ""}}, "processes": []}
    return SurveyAnswers({"cards": {"told": {**told, "log": {"blind": "", "messages": []}}}})


def red(env: EnvSpec, capability: str, driver: str = "580.95.05") -> dict[str, str]:
    """Which are red of those of the driver and of machine code."""
    box = sample_rig(cards=(sample_card(capability),), envs=(env,))
    found = red_checks(test_envs, survey(driver), rig=box, environment=env_installation(box, env), env=env)
    return {name: text for name, text in found.items() if name in ("V02", "V03")}


def test_cuda_needs_a_driver_that_knows_it() -> None:
    env = declared_env(CUDA)
    assert red(env, "8.6") == {}
    ((name, text),) = red(env, "8.6", driver="575.57.08").items()
    assert name == "V02" and "575.57.08" in text and "branch 580 or newer" in text
    # without CUDA in it, any will do
    assert red(declared_env(), "8.6", driver="470.1") == {}


@pytest.mark.parametrize("capability", ["7.5", "12.0"])
def test_a_card_needs_machine_code_of_its_kind(capability: str) -> None:
    env = declared_env(COMPILED)
    assert red(env, "8.6") == {}
    ((name, text),) = red(env, capability).items()
    assert name == "V03" and "k/_C.so" in text and capability in text
