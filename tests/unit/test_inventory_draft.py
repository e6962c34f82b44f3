"""A survey becomes an inventory: declared keys, comments, and that it always loads."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rigwright import toml
from rigwright.declaration.catalog_loader import CatalogFile, load_catalog
from rigwright.host.basic_facts import ListeningSocket
from rigwright.inventory import load_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.survey.box_survey import BoxSurvey, GpuProcess, ObservedCard, ObservedDisk, ObservedModelServer
from rigwright.survey.inventory_draft import render_inventory, render_missing_cards
from rigwright.survey.suggestions import OperatorAnswers, card_names, offer_variant
from tests.unit.example_counts import example_count
from tests.unit.samples import OperatorFolder
from tests.unit.test_suggest import ANSWERS, CONNECTION, STRANGE, TURING, busy, cards, catalog, lock, place
from tests.unit.test_survey import BARE, CARD, capture

__all__ = ["catalog", "lock", "place"]  # fixtures


def loaded(place: OperatorFolder, text: str) -> tuple[dict[str, Any], Rig]:
    """The host data and the rig of an inventory's text, as a deploy reads it."""
    scope: dict[str, Any] = {}
    exec(compile(text, str(place.inventory), "exec"), scope)
    ((_, data),) = scope["rigs"]
    return data, load_rig(data["rig"])


def test_where_the_memory_would_decide_and_is_unknown_the_doubt_is_reported() -> None:
    shipped = load_catalog([ROOT / "catalog"])
    text = render_inventory(replace(BARE, cards=(TURING,)), ANSWERS, shipped)
    assert "its memory is unknown without a driver: it may be rtx-2080-ti-22g" in " ".join(text.split()).replace(
        "# ", ""
    )


def test_an_inventory_says_what_was_found_and_declares_what_fits(place: OperatorFolder, catalog: Catalog) -> None:
    survey = replace(capture("two-sockets"), processes=(*capture("two-sockets").processes, busy(name="Xorg", pid=9)))
    text = render_inventory(survey, replace(ANSWERS, variant="llamacpp/two"), catalog)
    data, rig = loaded(place, text)
    assert [card.name[-4:] for card in rig.cards] == ["0 Ti", "3090", "3090", "3090"]
    assert (rig.roots.models, rig.accounts.prefix) == ("/data/models", "rigwright")
    (chat,) = rig.instances
    # cards 0 and 1 are in use, and so is port 8020
    assert (chat.name, chat.variant_name, chat.cards, chat.port) == ("chat", "llamacpp/two", (2, 3), 8021)
    assert (rig.reserved_gpus, {key: data[key] for key in CONNECTION}) == ((0, 1), CONNECTION)
    said = " ".join(text.replace("#", "").split())
    for words in (
        "64 CPUs in 2 NUMA nodes",
        "link x8 of x16, fewer than the card supports",
        "NUMA node 1, link x16 of x16, up to 16.0 GT/s, 4 NVLink links up to card 3",
        "process 4242 python3 of root, container docker vllm-main vllm/vllm-openai:v0.11.0: 20480 MiB of card 1",
        "process 4343 ollama of ollama, ollama.service: card 0",
        "process 9 Xorg of root: has device files of the cards open",
        "ollama.service (active), from /etc/systemd/system/ollama.service",
        "11434 ollama (ollama.service)",
        "8020 python3 (docker-0123456789ab.scope)",
        "Other processes use these cards now, so no instance gets one; remove those that become free:",
        "Requests at once: 2; each gets up to 4096 tokens.",
        "It was deployed before, as rig old.",
        "/archive ext4, 7629.4 of 8583.1 GiB free, read-only",
    ):
        assert words in said
    assert "nvidia-persiste" not in said
    assert max(map(len, text.splitlines())) <= 120


def test_nothing_yet_leaves_an_example_with_a_free_port(place: OperatorFolder, catalog: Catalog) -> None:
    text = render_inventory(replace(BARE, listeners=(ListeningSocket(8020, "x", ""),)), ANSWERS, catalog)
    _, rig = loaded(place, text)
    assert (rig.cards, rig.instances) == ((), ())
    assert '"port": 8021}}' in text
    assert "No NVIDIA card is on the PCI bus." in text


def test_a_login_with_the_services_name_gets_another_for_them(place: OperatorFolder, catalog: Catalog) -> None:
    answers = replace(ANSWERS, connection={**CONNECTION, "ssh_user": "rigwright"})
    _, rig = loaded(place, render_inventory(BARE, answers, catalog))
    assert rig.accounts.prefix == "rigwright-serving"


@pytest.mark.parametrize("driver", [True, False])
def test_a_card_that_the_catalogue_lacks_comes_with_the_lines_to_add(place, catalog, tmp_path, driver):
    strange = STRANGE if driver else replace(STRANGE, name="", vram_mib=0, capability="")
    survey = replace(BARE, cards=cards(CARD, strange, strange))
    text = render_inventory(survey, ANSWERS, catalog)
    _, rig = loaded(place, text)
    assert [card.pci_ids for card in rig.cards] == [("10de:2204",)]
    assert "From card 1 on they cannot be declared yet" in text
    lines = render_missing_cards(survey, catalog)
    assert all(line.strip() in text for line in lines)
    added = "\n".join(line.strip() for line in lines if line.startswith("  ") and '"cards":' not in line)
    if not driver:
        assert added.count("# look it up") == 3
        return
    (tmp_path / "cards.toml").write_text(added)
    read = toml.load_toml(tmp_path / "cards.toml", CatalogFile).cards["h200"]
    assert (read.name, read.pci_ids, read.capability, read.vram_mib) == ("NVIDIA H200", ("10de:2335",), "9.0", 143771)
    assert '"cards": ["ampere", "h200", "h200"],' in text
    both = load_catalog([place.folder / "catalog", tmp_path])
    assert card_names(survey, both) == ("ampere", "h200", "h200")


def test_a_name_that_is_taken_is_not_given_again(catalog: Catalog) -> None:
    named = replace(STRANGE, name="Ampere")
    assert "  [cards.ampere-2335]" in render_missing_cards(replace(BARE, cards=(named,)), catalog)


# text that would end a comment or a literal, and surprising text
hostile = st.sampled_from(
    ["\n", "\nimport os\nos.abort()", "\r", "\x0c", "\u2028", '"', "'", "\\", '"""', "#", "{", "%s", "[red]", ""]
)
word = st.lists(hostile | st.text(max_size=8), max_size=3).map("".join)
count = st.integers(0, 2**40)
seen_cards = st.builds(
    ObservedCard,
    address=st.from_regex(r"0000:[0-9a-f]{2}:00\.0", fullmatch=True) | word,
    pci_id=st.sampled_from(["10de:2204", "10de:1e04", "10de:2335", "10de:2236"]),
    numa_node=st.none() | st.integers(0, 3),
    lanes=st.none() | count,
    lanes_max=st.none() | count,
    speed=word,
    speed_max=word,
    name=word,
    vram_mib=count,
    capability=st.sampled_from(["", "8.6", "12.0"]),
    nvlinks=count,
    nvlink_peers=st.lists(st.integers(0, 20), max_size=2).map(tuple),
)
memory = st.lists(st.tuples(st.integers(0, 20), count), max_size=2).map(tuple)
mount = (
    st.sampled_from(["/", "/srv", "/srv/models", "/home", "/data", "/mnt", "/mnt/x", "/var/lib", "/etc", "/opt"]) | word
)
surveys = st.builds(
    BoxSurvey,
    *(word, word, word, word, st.integers(0, 1000), count, count, count),
    cards=st.lists(seen_cards, max_size=5).map(tuple) | st.lists(seen_cards, min_size=17, max_size=17).map(tuple),
    driver=word,
    smi_failure=word,
    processes=st.lists(st.builds(GpuProcess, count, word, word, word, word, memory), max_size=3).map(tuple),
    disks=st.lists(st.builds(ObservedDisk, mount, word, word, count, count, st.booleans()), max_size=4).map(tuple),
    listeners=st.lists(st.builds(ListeningSocket, st.integers(8018, 8024), word, word), max_size=5).map(tuple),
    units=st.lists(st.builds(ObservedModelServer, word, word, word), max_size=2).map(tuple),
    record=st.none() | word,
)


@settings(
    max_examples=example_count(300),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(survey=surveys, variant=st.sampled_from([None, "llamacpp/cpu", "llamacpp/one", "llamacpp/two"]), user=word)
def test_any_survey_gives_an_inventory_that_loads(place, catalog, lock, survey, variant, user):
    login = user if re.fullmatch(r"[a-z]+", user) else "rigwright"
    answers = OperatorAnswers("box", {"ssh_hostname": "192.0.2.7", "ssh_user": login})
    if variant is not None and offer_variant(variant, survey, answers, catalog, lock, str(place.inventory)).refusal:
        variant = None
    text = render_inventory(survey, replace(answers, variant=variant), catalog)
    _, rig = loaded(place, text)
    assert [instance.variant_name for instance in rig.instances] == ([variant] if variant else [])
    assert len(rig.cards) <= len(survey.cards)
    code = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    assert all(re.match(r'"""One box|from rigwright|rigs = hosts|[ \]})]', line) for line in code)
    render_missing_cards(survey, Catalog.model_construct(None, cards={}, models={}, engines={}, variants={}))
