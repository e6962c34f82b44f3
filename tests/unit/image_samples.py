"""An instance that is served from an image, and the image's installation."""

from __future__ import annotations

from lab.oci import File, Image, image
from rigwright.engines.image import install
from rigwright.engines.image.install import Unpacked
from rigwright.engines.image.keys import Engine, Variant
from rigwright.model.rig import Instance, Rig
from rigwright.patches.patch import Patch
from rigwright.supply import images
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact
from tests.unit import samples, vllm_samples
from tests.unit.samples import card

IMAGE = image({"bin/one": File(b"one", 0o755)}, {"etc/two": File(b"two")}, Env=["A=b"])
WANTED = Input(kind="image", version="v0.21.0", sources=("docker-hub:vllm/vllm-openai",))
SITE = "/usr/lib/python3/dist-packages"
ENGINE = Engine(kind="image", image="served", serves="vllm", version="0.21.0", site=SITE)


def rows(one: Image = IMAGE) -> tuple[Artefact, ...]:
    """What is locked of an image."""
    return tuple(images.rows("served", WANTED, one.manifest))


def served(
    name: str = "chat", *, cards: tuple[int, ...] = (0,), patches: tuple[Patch, ...] = (), **changes: object
) -> Instance:
    """An instance; keys of its variant may be changed."""
    recipe = {"engine": "vllm-image", "model": "big", "cards": len(cards)} | changes
    return samples.instance(
        name,
        cards=cards,
        engine_name="vllm-image",
        engine=ENGINE,
        variant=Variant.model_validate(recipe),
        variant_name="image/sample",
        model_name="big",
        parts=vllm_samples.model(),
        artefacts=rows(),
        known=vllm_samples.KNOWN,
        patches=patches,
    )


def rig(*instances: Instance, **changes: object) -> Rig:
    """Their rig."""
    own = {"cards": (card("8.6"),) * 4, "engine_artefacts": {"vllm-image": rows()}}
    return samples.rig(*instances, **{**own, **changes})  # type: ignore[arg-type] # a rig's fields


def made(rig_: Rig) -> Unpacked:
    """The image on a host."""
    return install.installation(rig_, "vllm-image", ENGINE)
