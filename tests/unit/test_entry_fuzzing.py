"""Whatever an inventory's entry holds: it is refused in words, or it becomes units without a line that is not ours."""

import copy
import string
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rigwright.inventory import load_rig
from rigwright.serving.instance_units import build_unit
from tests.unit import samples
from tests.unit.example_counts import example_count
from tests.unit.samples import OperatorFolder, sample_entry

WORDS = ["turing", "llamacpp/one", "llamacpp/cpu", "/data/x", "http://h/x", "svc", "chat", "store"]
# text that would begin a line, a directive, a specifier, an option or a command of its own
INJECTED = ["\n", "\nExecStartPre=/bin/id", "\r", "\u2028", "%n", " -x", "'", "\\", "../", "$(id)", "é"]

short = st.text(max_size=12) | st.text(string.ascii_lowercase + string.digits + "/.-_:@", max_size=12)


def spoilt(good: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Good text with something injected anywhere."""
    parts = st.tuples(good, st.sampled_from(INJECTED), st.integers(0, 12))
    return parts.map(lambda one: one[0][: one[2]] + one[1] + one[0][one[2] :])


scalars = st.none() | st.booleans() | st.integers(-2, 70000) | st.floats() | st.binary(max_size=8)
texts = st.sampled_from(WORDS) | spoilt(st.sampled_from(WORDS)) | short
values = st.recursive(
    scalars | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            texts | st.none() | st.integers(0, 3) | st.floats() | st.binary(max_size=2), inner, max_size=3
        )
    ),
    max_leaves=5,
)
below_etc = st.from_regex(r"/etc(/[A-Za-z0-9._+@-]{1,5}){1,3}/?", fullmatch=True)
path = st.from_regex(r"/data(/[A-Za-z0-9._+@-]{1,5}){0,3}/?", fullmatch=True)
name = st.from_regex(r"[a-z0-9][a-z0-9-]{0,8}", fullmatch=True)
variant = st.sampled_from(["llamacpp/two", "llamacpp/one", "llamacpp/cpu"])
# where an entry is changed, `?` being any key, and what may fit there
PLACES: dict[tuple[str, ...], st.SearchStrategy[Any]] = {
    ("cards",): st.lists(st.sampled_from(["turing", "ampere"]), min_size=1, max_size=4),
    ("instances",): st.dictionaries(
        name, st.fixed_dictionaries({"variant": st.just("llamacpp/cpu"), "port": st.just(8022)})
    ),
    ("instances", "chat"): st.just({"variant": "llamacpp/cpu", "port": 8023, "cards": []}),
    ("instances", "?"): st.just({"variant": "llamacpp/cpu", "port": 8024}),
    ("instances", "chat", "variant"): spoilt(variant) | variant,
    ("instances", "chat", "port"): st.integers(1024, 65535),
    ("instances", "chat", "cards"): st.lists(st.integers(0, 2), max_size=3),
    ("instances", "chat", "api_key_file"): texts,
    ("instances", "chat", "?"): values,
    ("roots",): st.dictionaries(st.sampled_from(["software", "models", "state", "config"]), path),
    ("roots", "software"): spoilt(path) | path,
    ("roots", "models"): spoilt(path) | path,
    ("roots", "config"): spoilt(below_etc) | below_etc | path,
    ("roots", "?"): values,
    ("mirrors",): st.fixed_dictionaries({"store": st.just(["http://h/x"])}),
    ("mirrors", "?"): st.lists(st.from_regex(r"https?://[a-z.]{1,5}(:8000)?(/[a-z]{1,3})?", fullmatch=True)),
    ("mirrors", "index"): st.just(["http://h/x"]),
    ("proxy",): st.just("http://h:3128") | texts,
    ("no_proxy",): st.lists(st.just(".example.org") | texts, max_size=2),
    ("ca_file",): texts,
    ("keep_generations",): st.integers(-1, 101),
    ("service_user",): spoilt(name) | name,
    ("cuda_root",): spoilt(path) | path,
    ("ssh_user",): name,
    ("?",): values,
}
# printed values of a unit are changed more often
PRINTED = [place for place in PLACES if {"variant", "software", "models", "config", "service_user"} & set(place)]
PRINTED.append(("instances", "?"))
change = st.sampled_from([*PLACES, *PRINTED * 3]).flatmap(
    lambda place: st.tuples(
        st.just(place), spoilt(name) | spoilt(name) | name | texts, PLACES[place] | PLACES[place] | values
    )
)
changes = st.lists(change, min_size=1, max_size=2)
rig_names = st.sampled_from(["box"] * 8 + ["Box", "a\nb", "-a", "b2"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OperatorFolder:
    return OperatorFolder(tmp_path_factory.mktemp("box"))


def mutated(changes: list[tuple[tuple[str, ...], str, Any]]) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(sample_entry())
    for path, word, value in changes:
        inner: Any = changed
        for key in path[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[word if path[-1] == "?" else path[-1]] = value
        elif path[0] not in changed:
            changed[path[0]] = {word if path[-1] == "?" else path[-1]: value}
    return changed


def directives(text: str) -> list[str]:
    return [line.partition("=")[0] for line in text.split("\n")]


def characters(text: str) -> set[str]:
    return set("\n".join(line for line in text.split("\n") if not line.startswith("#")))


def sample(cards: int) -> str:
    """The unit of an instance that is known to be right."""
    instance = samples.sample_instance(cards=tuple(range(cards)))
    return build_unit(
        samples.sample_rig(instance, cards=(samples.sample_card("8.6"),) * cards),
        instance,
        samples.sample_installation(),
    ).text


@settings(
    max_examples=example_count(400),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes=changes, rig_name=rig_names)
def test_any_entry_is_refused_in_words_or_becomes_units_with_our_lines_only(place, changes, rig_name):
    try:
        ((_, data),) = place.load_group({rig_name: mutated(changes)})
    except SystemExit as ended:
        assert isinstance(ended.code, str)
        assert str(place.inventory) in ended.code
        return
    rig = load_rig(data["rig"])
    for instance in rig.instances:
        made = build_unit(rig, instance, samples.sample_installation())
        right = sample(len(instance.cards))
        assert directives(made.text) == directives(right)
        # a slice has the dashes of an instance escaped (systemd.slice(5))
        text = made.text.replace(r"\x2d", "-")
        assert characters(text) <= characters(right) | set(string.ascii_letters + string.digits + "._+@-/,")


@pytest.mark.parametrize("injected", ["a\nExecStartPre=/bin/id", "a\rb", "a%n", "a\\b", "é"], ids=ascii)
def test_foreign_objects_would_be_seen(injected: str) -> None:
    instance = samples.sample_instance(name=injected)
    text = build_unit(samples.sample_rig(instance), instance, samples.sample_installation()).text
    assert directives(text) != directives(sample(0)) or not characters(text) <= characters(sample(0))
