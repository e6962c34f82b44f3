"""Images with cards: the spec by which podman finds those is brought, and is there before a container starts."""

import re
from pathlib import Path
from typing import Any

import pytest

from rigwright import toml
from rigwright.engines import kinds
from rigwright.engines.image import KIND
from rigwright.engines.instance_resolution import refuse_without_cdi
from rigwright.model.containers.archive_tables import CDI_SPEC, REFRESH_UNIT
from rigwright.model.inventory_schema import RigEntry
from rigwright.serving.instance_units import build_unit
from tests.unit.image_samples import image_instance, image_rig, unpacked_image
from tests.unit.samples import OperatorFolder


def container_refusals(containers: dict[str, Any] | None, cards: tuple[int, ...] = (0,)) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    entry = RigEntry.model_validate({"containers": containers} if containers else {})
    refuse_without_cdi([image_instance(cards=cards)], entry, lambda *said: found.append(said))
    return found


def test_cards_without_what_brings_their_spec_are_refused_with_the_cure() -> None:
    ((key, text),) = container_refusals(None)
    assert key == "instances.chat.variant"
    assert text.startswith("image/sample: ")
    assert 'declare "containers": {"engines": ["podman"]}, or "docker" if' in text


def test_it_is_refused_while_the_inventory_loads(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kinds()["llama.cpp"]), "container_engine", "podman")
    (line,) = box.refusal_lines()
    assert line.startswith(f"{box.inventory}: box.instances.")
    assert '"containers": {"engines": ["podman"]}' in line


@pytest.mark.parametrize("engines", [["podman"], ["docker"], ["docker", "podman"]])
def test_with_containers_of_either_kind_it_is_fine(engines: list[str]) -> None:
    # the toolkit comes with each
    assert container_refusals({"engines": engines}) == []


def test_an_instance_without_cards_needs_none_of_it() -> None:
    assert container_refusals(None, cards=()) == []
    assert REFRESH_UNIT not in text(cards=())
    assert CDI_SPEC not in text(cards=())


def text(cards: tuple[int, ...] = (0,)) -> str:
    one = image_rig(image_instance(cards=cards))
    return build_unit(one, one.instances[0], unpacked_image(one)).text


def test_its_unit_starts_the_refresh_of_the_spec_and_waits_for_it() -> None:
    lines = text().splitlines()
    assert f"Wants={REFRESH_UNIT}" in lines
    assert REFRESH_UNIT in next(line for line in lines if line.startswith("After=")).partition("=")[2].split()
    # a card that does not answer for once is no reason not to try
    assert not [line for line in lines if line.startswith(("Requires=", "BindsTo="))]


def test_the_program_before_it_learns_which_file_to_wait_for() -> None:
    (line,) = [line for line in text().splitlines() if " make /run/" in line]
    assert line.endswith(f" {CDI_SPEC}")


def test_podman_reads_the_spec_that_follows_the_driver_and_no_foreign_one() -> None:
    one = image_rig(image_instance())
    service = KIND.service(one, one.instances[0], unpacked_image(one))
    settings = service.programs[Path(service.environment["CONTAINERS_CONF"]).name]
    assert toml.tomllib.loads(settings)["engine"]["cdi_spec_dirs"] == [str(Path(CDI_SPEC).parent)]


def test_a_start_that_waits_for_the_spec_says_why() -> None:
    (cause,) = [
        one
        for one in KIND.causes
        if re.search(one.pattern, f"waits for {CDI_SPEC}, by which the container finds its cards")
    ]
    assert REFRESH_UNIT in cause.text
