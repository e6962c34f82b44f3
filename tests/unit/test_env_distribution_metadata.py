"""Whatever Python takes for a package's description in an environment is one of a locked package, or V01 is red."""

from pathlib import Path

import pytest

from checks import test_envs
from checks.survey.answers import SurveyAnswers
from checks.survey.host.trees import distributions
from rigwright.envs.environment import prefix_folder
from tests.unit.check_runner import red_checks
from tests.unit.env_samples import conda_row, env_installation
from tests.unit.samples import sample_rig


def red(tmp_path: Path, *more: str) -> str:
    """The result of V01 for an environment with more in its site-packages."""
    box, one = sample_rig(), env_installation()
    site = tmp_path / "lib/python3.10/site-packages"
    described = [f"{name}-{version}.dist-info" for name, version in one.distributions.items()]
    for name in (*described, *more):
        (site / name).mkdir(parents=True)
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / conda_row().file.replace(".conda", ".json")).touch()
    packages = {prefix_folder(box.roots.installation_path(one.folder)): distributions(str(tmp_path))}
    told = {"trees": [], "beside": [], "gone": [], "distributions": packages}
    return red_checks(
        test_envs, SurveyAnswers({"trees": {"told": told}}), rig=box, environment=one, unsupplied=["V03"]
    ).get("V01", "")


def test_the_locked_ones_are_well(tmp_path: Path) -> None:
    assert red(tmp_path, "demo", "demo.libs") == ""


@pytest.mark.parametrize(
    "name", ["demo-0.9.egg-info", "demo-0.9.EGG-INFO", "demo-0.9.egg", "demo.egg-link", "demo-0.9.Dist-Info"]
)
def test_another_of_any_kind_is_named(tmp_path: Path, name: str) -> None:
    assert name in red(tmp_path, name)
