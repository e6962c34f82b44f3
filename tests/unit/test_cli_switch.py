"""`rigwright switch`: its refusals before a host is touched, its writes, and its undoing."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import checks.connections
import cli.switch as verb
from cli import main, observed_box
from cli.deploy_verbs import RunRequest
from cli.verdict_report import InstanceVerdict
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch
from rigwright.engines.known_issue_rule import KnownIssue
from rigwright.engines.llama_cpp import LlamaCpp
from rigwright.gateway.secrets_distribution import GatewaySecretFacts
from rigwright.inventory import load_rig
from rigwright.model.fact_types import HostFacts
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.plan.state_digests import OwnedStateFacts
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing, ObservedUnit, UnitUsage
from rigwright.serving.standby import FreeMemory
from tests.unit.ready_instances import ready_facts
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry, sample_facts

OTHERS = """
[variants."llamacpp/wide"]
engine = "plain"
model = "small"
context = 8192

[variants."llamacpp/pair"]
engine = "plain"
model = "small"
cards = 2
context = 4096

[variants."llamacpp/new-cards"]
engine = "plain"
model = "small"
cards = 2
context = 8192

[variants."llamacpp/new-cards".purpose]
cards = ["newest"]
why = "for others"

[cards.newest]
name = "NVIDIA Newest"
pci_ids = ["10de:ffff"]
capability = "12.0"
vram_mib = 32768

[models.absent]
file = "absent"

[inputs.absent]
kind = "weight"
version = "1"
sources = ["store:absent.gguf"]

[variants."llamacpp/absent"]
engine = "plain"
model = "absent"
context = 4096

[blocked."sglang/default"]
why = "does not run this model"
alternative = ["llamacpp/cpu"]
"""


OK = ProbeFinding("completion", "it answers a question", "ok", "Paris")
FAIL = ProbeFinding("tool-call", "it calls a tool", "fail", "no tool call")
SKIP = ProbeFinding("image", "it sees an image", "skip", "too small")


class SwitchOperator:
    """An inventory of two boxes, and what a verb does to them: nothing, but it is written down."""

    def __init__(self, box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.box = box
        self.ran: list[RunRequest] = []
        self.looked = 0
        self.serves: dict[str, str] | None = {"chat": "llamacpp/cpu"}
        self.cards: dict[str, tuple[int, ...]] = {}
        """Those that its instances are served on; others are as declared."""
        box.write("catalog/box.toml", CATALOG + OTHERS)
        self.declare(two=sample_entry(ssh_hostname="192.0.2.8"), one=sample_entry(cards=[], instances=chat_instances()))
        monkeypatch.setattr(verb, "connect_inventory", self.boxes)
        monkeypatch.setattr(verb, "run_request", self.deploy)
        monkeypatch.setattr(observed_box, "read_health", ready_facts)
        monkeypatch.setattr(verb, "verify_box", self.verify)
        # it would take this process's own Ctrl-C
        monkeypatch.setattr(verb, "InterruptHandler", SimpleNamespace)
        self.judged = InstanceVerdict("chat", "llamacpp/wide", checks=[OK])
        self.verdicts: list[InstanceVerdict] = []

    def declare(self, **boxes: dict[str, object]) -> None:
        rows = "\n".join(f"    {name!r}: {keys!r}," for name, keys in boxes.items())
        self.box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{\n{rows}\n}})\n")

    @property
    def text(self) -> str:
        return self.box.inventory.read_text()

    def boxes(
        self, inventory: str, limit: str | None
    ) -> tuple[list[checks.connections.ConnectedHost], checks.connections.UnreachableHosts]:
        self.looked += 1
        if self.serves is None:
            return [], {"one": "Connection refused"}
        scope: dict[str, Any] = {}
        exec(compile(self.text, inventory, "exec"), scope)
        data = dict(scope["rigs"])[str(limit)]
        return [SwitchBox(str(limit), load_rig(data["rig"]), SimpleNamespace(serves=self.serves, cards=self.cards))], {}

    def deploy(self, wanted: RunRequest) -> None:
        self.ran.append(wanted)

    def verify(self, box: Any, instances: Any, *rest: object) -> list[InstanceVerdict]:
        verdicts = self.verdicts or [self.judged]
        assert [one.variant_name for one in instances] == [self.ran[-1].orders["switch"].split(":")[1]] * len(verdicts)
        return verdicts

    def switch(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["switch", str(self.box.inventory), *words])


class SwitchBox(checks.connections.ConnectedHost):
    """A box whose host is known."""

    def prefetch(self, *looks: str) -> checks.connections.ConnectedHost:
        return self

    def read_facts(self) -> HostFacts:
        return sample_facts(clock=int(time.time()))

    def read_serving_state(self) -> ObservedServing:
        kept = ObservedGeneration(1, "0" * 64, "0" * 64, "", variants=self.target.serves, cards=self.target.cards)
        return ObservedServing(
            generations=(kept,), current=1, processes={"rigwright-chat.service": ObservedUnit("active", "running")}
        )

    def run_and_parse(self, parse: Any, script: str) -> Any:
        if "MemAvailable" not in script:
            return GatewaySecretFacts()
        return FreeMemory(1 << 40)

    def read_owned_state(self) -> OwnedStateFacts:
        return OwnedStateFacts()

    def read_written_files(self) -> dict[str, tuple[str, str]]:
        return {}

    def read_resource_usage(self) -> dict[str, UnitUsage]:
        return {"rigwright-chat.service": UnitUsage("", 5, 12.4)}


@pytest.fixture
def operator(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> SwitchOperator:
    return SwitchOperator(box, monkeypatch)


ONE, TWO = ("--limit", "one"), ("--limit", "two")
REFUSED = {
    "misspelt": (("chat", "llamacpp/wid", *ONE), 'there is no variant "llamacpp/wid"; did you mean "llamacpp/wide"?'),
    "blocked": (("chat", "sglang/default", *ONE), "sglang/default is blocked"),
    "not locked": (("chat", "llamacpp/absent", *ONE), "absent"),
    "another number of cards": (("chat", "llamacpp/one", *ONE), "llamacpp/one needs 1 card, but 0 are listed"),
    "no name of a variant": (("chat", "wide", *ONE), 'there is no variant "wide"; did you mean "llamacpp/wide"?'),
    "there is no such instance": (("chit", "llamacpp/wide", *ONE), 'no instance "chit"; did you mean "chat"?'),
    "on several boxes": (("chat", "llamacpp/wide"), "chat is on one, two: choose one with --limit HOST"),
    "there is no such box": (("chat", "llamacpp/wide", "--limit", "tow"), 'no host or group "tow"'),
    "for other cards": (
        ("chat", "llamacpp/new-cards", *TWO),
        "two: llamacpp/new-cards is made for newest, and chat has NVIDIA GeForce RTX 2080 Ti, NVIDIA GeForce RTX 3090",
    ),
    "no variant at all": (("chat", *ONE), "name a VARIANT, or use --list"),
    "a list of one": (("chat", "llamacpp/wide", "--list", *ONE), "--list conflicts with all other arguments"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=list(REFUSED))
def test_an_impossible_value_is_refused_before_a_host_is_touched(operator, words, said):
    before = operator.text
    done = operator.switch(*words)
    assert done.exit_code != 0
    assert said in done.output, done.output
    assert (operator.text, operator.ran, operator.looked) == (before, [], 0)


def test_weights_that_do_not_fit_are_refused_as_a_deploy_refuses_them(operator, monkeypatch):
    words = "its weights need 9.9 of 1.0 GiB"
    rule = KnownIssue(lambda one: words if one.instance.variant_name == "llamacpp/wide" else "", "-", refused=True)
    monkeypatch.setattr(LlamaCpp, "rules", lambda self: (rule,))
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert f"llamacpp/wide: {words}" in done.output
    assert (done.exit_code, operator.ran, operator.looked) == (2, [], 0)


def test_the_file_is_edited_after_all_and_the_box_deployed(operator: SwitchOperator) -> None:
    before = operator.text
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert done.exit_code == 0, done.output
    old, new = (f"{{'chat': {{'variant': 'llamacpp/{name}', 'port': 8020}}}}" for name in ("cpu", "wide"))
    assert operator.text == before.replace(old, new) != before
    assert [line[:1] for line in done.output.splitlines() if old in line or new in line] == ["-", "+"]
    (ran,) = operator.ran
    assert (ran.inventory, ran.limit, ran.dry) == (str(operator.box.inventory), "one", False)
    assert ran.pyinfra_data == {"switch": "chat:llamacpp/wide"}
    assert "one: chat: llamacpp/cpu -> llamacpp/wide" in done.output
    words = " ".join(done.output.split())
    assert f"To return: `rigwright switch {operator.box.inventory} chat llamacpp/cpu --limit one`" in words
    assert "downtime of chat, from the end of the old process to the new one's first answer: about 12 s" in done.output
    assert "one: both cannot run at once: the rig has no gateway" in done.output


def test_interruptions_by_the_variant_itself_are_no_difference_from_the_inventory(operator, monkeypatch):
    """Such as the gateway's router, whose settings have the slots of instances."""
    lan = {"listeners": {"lan": {"address": "0.0.0.0", "port": 8000}}}
    operator.declare(one=sample_entry(cards=[], instances=chat_instances(), gateway=lan))
    units = ("rigwright-chat.service", "rigwright_router.service")
    running = {one: ObservedUnit("active", "running") for one in units}
    before = SwitchBox.read_serving_state
    monkeypatch.setattr(SwitchBox, "read_serving_state", lambda self: replace(before(self), processes=running))
    done = operator.switch("chat", "llamacpp/wide", *ONE, "--dry")
    assert done.exit_code == 0, done.output
    assert "one: interrupted with it: rigwright_router.service" in done.output
    assert "differs from the inventory" not in done.output


def test_once_leaves_the_file_as_it_is(operator: SwitchOperator) -> None:
    before = operator.text
    done = operator.switch("chat", "llamacpp/wide", *ONE, "--once")
    assert done.exit_code == 0, done.output
    assert operator.text == before
    assert operator.ran[0].pyinfra_data == {"switch": "chat:llamacpp/wide"}
    assert "serves llamacpp/wide until the next deploy" in done.output
    assert f"`rigwright deploy {operator.box.inventory} --limit one`" in " ".join(done.output.split())
    assert "---" not in done.output


def test_dry_says_it_all_and_does_nothing(operator: SwitchOperator) -> None:
    before = operator.text
    done = operator.switch("chat", "llamacpp/wide", *ONE, "--dry")
    assert done.exit_code == 0, done.output
    assert "+    'one'" in done.output
    assert (operator.text, operator.ran) == (before, [])


@pytest.fixture
def planless(operator: SwitchOperator, monkeypatch: pytest.MonkeyPatch) -> SwitchOperator:
    """The stand-in for a host is not asked, and its cards are not there."""
    monkeypatch.setattr(
        verb,
        "_preview_switch",
        lambda box, order, declared, found: verb.reverse_switch(order, declared, box.read_serving_state()),
    )
    return operator


def test_a_variant_for_fewer_cards_gets_the_first_and_one_for_more_gets_free_ones(planless: SwitchOperator) -> None:
    operator = planless
    cards = {"cards": ["turing", "ampere", "ampere"], "reserved_gpus": [1]}
    operator.declare(one=sample_entry(**cards, instances=chat_instances(variant="llamacpp/one", cards=[2])))
    assert operator.switch("chat", "llamacpp/two", *ONE).exit_code == 0
    assert "'variant': 'llamacpp/two', 'port': 8020, 'cards': [2, 0]" in operator.text
    done = operator.switch("chat", "llamacpp/one", *ONE)
    assert done.exit_code == 0, done.output
    assert "'variant': 'llamacpp/one', 'port': 8020, 'cards': [2]" in operator.text
    assert orders(operator) == ["chat:llamacpp/two:2,0", "chat:llamacpp/one:2"]


def test_a_variant_that_is_made_for_another_free_card_gets_that(planless: SwitchOperator) -> None:
    operator = planless
    cards = ["turing", "ampere", "newest", "newest"]
    operator.declare(one=sample_entry(cards=cards, instances=chat_instances(variant="llamacpp/two", cards=[0, 1])))
    done = operator.switch("chat", "llamacpp/new-cards", *ONE)
    assert done.exit_code == 0, done.output
    assert "'variant': 'llamacpp/new-cards', 'port': 8020, 'cards': [2, 3]" in operator.text
    assert orders(operator) == ["chat:llamacpp/new-cards:2,3"]


def test_instances_behind_one_name_are_switched_together(planless: SwitchOperator) -> None:
    operator = planless
    pair = {name: {"variant": "llamacpp/cpu", "port": port} for name, port in (("chat", 8020), ("code", 8021))}
    gateway = {
        "listeners": {"lan": {"address": "0.0.0.0", "port": 8000}},
        "models": {"m": {"instances": ["chat", "code"]}},
    }
    operator.declare(one=sample_entry(cards=[], instances=pair, gateway=gateway))
    before = operator.text
    operator.verdicts = [
        InstanceVerdict("chat", "llamacpp/wide", checks=[OK]),
        InstanceVerdict("code", "llamacpp/wide", checks=[FAIL]),
    ]
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert "one: also switched, because they share its name: code" in done.output
    assert "llamacpp/wide fails: it calls a tool" in done.output
    assert (done.exit_code, operator.text) == (1, before)
    assert orders(operator) == ["chat:llamacpp/wide", "chat:llamacpp/cpu"]
    operator.verdicts = [InstanceVerdict(name, "llamacpp/wide", checks=[OK]) for name in pair]
    assert operator.switch("chat", "llamacpp/wide", *ONE).exit_code == 0
    assert operator.text == before.replace("llamacpp/cpu", "llamacpp/wide")


@pytest.mark.parametrize(("variant", "cards"), [("llamacpp/one", (1,)), ("llamacpp/two", (1, 0))])
def test_one_that_answers_wrongly_after_once_gives_way_to_what_was_served_and_on_those_cards(planless, variant, cards):
    operator = planless
    declared = sample_entry(instances=chat_instances(variant="llamacpp/two", cards=[0, 1]))
    operator.declare(one=declared)
    before, operator.serves, operator.cards = operator.text, {"chat": variant}, {"chat": cards}
    operator.judged = InstanceVerdict("chat", "llamacpp/pair", checks=[FAIL])
    assert operator.switch("chat", "llamacpp/pair", *ONE).exit_code == 1
    listed = ",".join(map(str, cards))
    assert orders(operator) == ["chat:llamacpp/pair", f"chat:{variant}:{listed}"]
    assert operator.text == before
    ((_, data),) = operator.box.load_group({"one": declared})
    (served,) = load_rig(apply_switch(data["rig"], VariantSwitch("chat", variant, cards))).instances
    assert (served.variant_name, served.cards) == (variant, cards)


OLD, NEW = {"chat": "llamacpp/cpu"}, {"chat": "llamacpp/wide"}


def orders(operator: SwitchOperator) -> list[object]:
    return [one.orders["switch"] for one in operator.ran]


def test_one_that_answers_wrongly_gives_way_to_what_was_served_before(operator: SwitchOperator) -> None:
    before, operator.serves = operator.text, {"chat": "llamacpp/one"}
    operator.judged = InstanceVerdict("chat", "llamacpp/wide", checks=[OK, FAIL, SKIP])
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert (done.exit_code, orders(operator)) == (1, ["chat:llamacpp/wide", "chat:llamacpp/one"])
    assert operator.text == before
    assert "llamacpp/wide fails: it calls a tool; chat serves llamacpp/one again" in done.output


@pytest.mark.parametrize(
    ("judged", "why"),
    [
        (InstanceVerdict("chat", "llamacpp/wide", checks=[SKIP]), "no check could test it"),
        (InstanceVerdict("chat", "llamacpp/wide", state="chat is asleep", checks=[OK]), "chat is asleep"),
        (
            InstanceVerdict("chat", "llamacpp/wide", ended="the client on the box is lost"),
            "the client on the box is lost",
        ),
    ],
)
@pytest.mark.parametrize("once", [(), ("--once",)])
def test_one_that_cannot_be_verified_gives_way_to_what_was_served_before(operator, judged, why, once):
    before, operator.judged = operator.text, judged
    done = operator.switch("chat", "llamacpp/wide", *ONE, *once)
    assert (done.exit_code, orders(operator)) == (1, ["chat:llamacpp/wide", "chat:llamacpp/cpu"])
    assert f"one: llamacpp/wide is not verified: {why} (--unverified accepts that)" in done.output
    assert operator.text == before


def test_an_interrupted_verification_leaves_the_new_variant(operator: SwitchOperator) -> None:
    operator.judged = InstanceVerdict("chat", "llamacpp/wide", ended="interrupted")
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert (done.exit_code, orders(operator)) == (1, ["chat:llamacpp/wide"])
    assert "one: chat serves llamacpp/wide, unverified: interrupted" in done.output
    assert "llamacpp/wide" in operator.text


def test_a_check_that_the_model_cannot_be_judged_by_is_no_failure(operator: SwitchOperator) -> None:
    operator.judged = InstanceVerdict("chat", "llamacpp/wide", checks=[OK, SKIP])
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert (done.exit_code, orders(operator)) == (0, ["chat:llamacpp/wide"]), done.output


def test_it_is_not_asked_without_an_option(operator: SwitchOperator) -> None:
    operator.judged = InstanceVerdict("chat", "llamacpp/wide", checks=[FAIL])
    assert operator.switch("chat", "llamacpp/wide", "--unverified", *ONE).exit_code == 0
    assert orders(operator) == ["chat:llamacpp/wide"]


def test_a_declared_variant_is_deployed_without_an_edit(operator: SwitchOperator) -> None:
    before = operator.text
    done = operator.switch("chat", "llamacpp/cpu", *ONE)
    assert done.exit_code == 0, done.output
    assert (operator.text, len(operator.ran)) == (before, 1)


def test_the_list_says_what_fits_what_is_served_and_what_stands_in_the_way(operator: SwitchOperator) -> None:
    operator.serves = {"chat": "llamacpp/wide"}
    done = operator.switch("chat", "--list", *ONE)
    assert done.exit_code == 0, done.output
    rows = {line.split()[0]: line.rstrip() for line in done.output.splitlines() if line.startswith("llamacpp")}
    assert rows["llamacpp/cpu"].endswith("declared")
    assert rows["llamacpp/wide"].endswith("served")
    assert "absent" in rows["llamacpp/absent"].removeprefix("llamacpp/absent")
    assert not rows.keys() & {"llamacpp/one", "llamacpp/two", "llamacpp/new-cards"}
    assert operator.ran == []
