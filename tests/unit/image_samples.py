"""An instance that is served from an image, and the image's installation."""

from rigwright.engines.image import install
from rigwright.engines.image.catalog_keys import ImageEngine, VllmVariant
from rigwright.engines.image.install import UnpackedImage
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.patches.patch import Patch
from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from tests.stand_ins.oci_images import LayerEntry, OCIImage, build_image
from tests.unit import samples, vllm_samples
from tests.unit.samples import sample_card

IMAGE = build_image({"bin/one": LayerEntry(b"one", 0o755)}, {"etc/two": LayerEntry(b"two")}, Env=["A=b"])
REQUESTED_IMAGE = Input(kind="image", version="v0.21.0", sources=("docker-hub:vllm/vllm-openai",))
SITE = "/usr/lib/python3/dist-packages"
ENGINE = ImageEngine(kind="image", image="served", serves="vllm", version="0.21.0", site=SITE)


def image_rows(one: OCIImage = IMAGE) -> tuple[Artefact, ...]:
    """The locked rows of an image."""
    return tuple(image_manifest.image_rows("served", REQUESTED_IMAGE, one.manifest))


def image_instance(
    name: str = "chat", *, cards: tuple[int, ...] = (0,), patches: tuple[Patch, ...] = (), **changes: object
) -> Instance:
    """An instance; keys of its variant may be changed."""
    recipe = {"engine": "vllm-image", "model": "big", "cards": len(cards)} | changes
    return samples.sample_instance(
        name,
        cards=cards,
        engine_name="vllm-image",
        engine=ENGINE,
        variant=VllmVariant.model_validate(recipe),
        variant_name="image/sample",
        model_name="big",
        parts=vllm_samples.checkpoint_parts(),
        artefacts=image_rows(),
        known=vllm_samples.KNOWN,
        patches=patches,
    )


def image_rig(*instances: Instance, **changes: object) -> Rig:
    """Their rig."""
    own = {"cards": (sample_card("8.6"),) * 4, "engine_artefacts": {"vllm-image": image_rows()}}
    return samples.sample_rig(*instances, **{**own, **changes})  # type: ignore[arg-type] # a rig's fields


def unpacked_image(rig_: Rig) -> UnpackedImage:
    """The image on a host."""
    return install.plan_image(rig_.instances, rig_.envs, rig_.toolkit, rig_.engine_artefacts, "vllm-image", ENGINE)
