"""`rigwright init` asks what `rigwright show variants` answers, and with --serve has it served."""

import runpy
from dataclasses import dataclass, field

import pytest

import cli.init_prompts
from rigwright.gateway.served_models import offers_of
from rigwright.inventory import load_for, load_rig
from tests.unit.samples import OperatorFolder
from tests.unit.test_init import Init, load_written
from tests.unit.test_init import init as init
from tests.unit.test_init import surveyed_connections as surveyed_connections

ONE = {"variant": "llamacpp/one", "cards": [2], "port": 8021}
CPU = {"variant": "llamacpp/qwen2.5-1.5b-cpu", "port": 8021}


@pytest.mark.usefixtures("surveyed_connections")
@pytest.mark.parametrize(
    ("options", "answer", "instance"),
    [
        ([], None, None),
        # a need, a workload, how many cards, and which of those that answer
        ([], "0\n0\n2\n0\n", None),
        ([], "\n\n\n\n", {"variant": "vllm/dual", "cards": [2, 3], "port": 8021}),
        ([], "9\n0\n7\n0\n0\n0\n", None),
        ([], "0\n7\n0\n\n", CPU),
        ([], "2\n0\n1\n1\n", {"variant": "llamacpp/default", "cards": [2], "port": 8021}),
        (["--need", "throughput"], None, {"variant": "vllm/dual", "cards": [2, 3], "port": 8021}),
        (["--need", "context", "--cards", "1"], None, {"variant": "llamacpp/default", "cards": [2], "port": 8021}),
        (["--workload", "translation"], "no question\n", CPU),
        (["--variant", "llamacpp/one", "--port", "9000"], None, ONE | {"port": 9000}),
        (["--variant", "llamacpp/one"], "3\n", ONE),
    ],
)
def test_the_purpose_of_the_box_is_a_question_or_an_option_or_open(
    init: Init, box: OperatorFolder, options: list[str], answer: str | None, instance: dict[str, object] | None
) -> None:
    done = init("root@box", *options, answer=answer)
    assert done.exit_code == 0, done.output
    with load_for("lock"):
        entry = load_written(box.folder / "box.py")["rig"]["entry"]
    assert entry.get("instances") == ({"chat": instance} if instance else None)
    asked = {"Priority?", "Workload?", "Variant to serve?"}
    assert {one for one in asked if one in done.output} == (asked if answer is not None and not options else set())


@pytest.mark.usefixtures("surveyed_connections")
def test_matching_variants_are_listed_with_reason_and_evidence(init: Init) -> None:
    shown = init("root@box", answer="2\n1\n2\n0\n").output
    assert "  4  the most that one card can do" in shown
    assert "How many of 2 free cards?" in shown
    assert "  1  llamacpp/65k: cards 2, 1 at once with 65536 tokens each; derived\n     Headroom" in shown
    # it answers another workload, and a need that was not asked for
    assert "llamacpp/default" not in shown
    assert "llamacpp/one" not in shown


@pytest.mark.usefixtures("surveyed_connections")
def test_unlocked_variants_are_offered_and_locked_next(init: Init, box: OperatorFolder) -> None:
    done = init("root@box", "--variant", "llamacpp/65k")
    assert done.exit_code == 0, done.output
    assert (
        "Wrote box.py, and it is valid, except for unlocked files. Read it; then\n  rigwright lock box.py "
        in done.output
    )
    with load_for("lock"):
        assert load_written(box.folder / "box.py")["rig"]["entry"]["instances"]["chat"]["cards"] == [2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--variant", "llamacpp/one", "--need", "context"], "--variant conflicts with --need, --workload and --cards"),
        (["--serve"], "no terminal to ask on: pass --need"),
        (["--reboot"], "--reboot needs --serve"),
        (["--need", "speed"], 'there is no need "speed"; allowed: context, one-card, streams, throughput'),
        (["--workload", "tetris"], 'there is no workload "tetris"'),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_connecting(
    init: Init, surveyed_connections: list[object], words: list[str], said: str
) -> None:
    done = init("root@box", *words)
    assert (done.exit_code, surveyed_connections) == (2, [])
    assert said in " ".join(done.output.split())


@pytest.mark.usefixtures("surveyed_connections")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--need", "throughput", "--cards", "0"], "matches; for these cards: llamacpp/qwen2.5-1.5b-cpu"),
        (["--workload", "translation", "--need", "context"], "matches; for these cards: vllm/dual, "),
        (["--need", "throughput", "--workload", "agents", "--cards", "1"], "for these cards: llamacpp/default"),
    ],
)
def test_a_need_that_nothing_answers_is_reported_and_nothing_is_written(
    init: Init, box: OperatorFolder, options: list[str], said: str
) -> None:
    done = init("root@box", *options)
    assert done.exit_code == 2
    assert said in done.output.splitlines()[-1]
    assert not (box.folder / "box.py").exists()


@dataclass
class RecordedVerbs:
    """The verbs that were run, and those that fail."""

    seen: list[list[str]] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)

    def __call__(self, words: list[str]) -> int:
        self.seen.append(words[2:])
        return int(words[2] in self.failing)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, *_ in self.seen]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> RecordedVerbs:
    made = RecordedVerbs()
    monkeypatch.setattr(cli.init_prompts, "_run_rigwright", made)
    return made


@pytest.mark.usefixtures("surveyed_connections")
def test_to_serve_is_to_lock_validate_and_deploy_and_to_say_where(
    init: Init, box: OperatorFolder, ran: RecordedVerbs
) -> None:
    words = ("ops@192.0.2.7:2222", "--name", "b", "--key", "key", "--serve", "--reboot")
    done = init(*words, "--need", "context", "--cards", "1")
    assert done.exit_code == 0, done.output
    file = str(box.folder / "b.py")
    assert ran.seen == [["lock", file], ["validate", file], ["deploy", file, "--reboot"], ["check", file, "--serving"]]
    key = box.folder / "key"
    last = done.output.partition("==> rigwright check b.py --serving\n")[2].splitlines()
    assert last == [
        "",
        "Qwen3.6-27B-UD-Q3_K_XL-text answers at http://127.0.0.1:8021/v1 on the box, with a key of its own. From here:",
        f"  ssh -L 8021:127.0.0.1:8021 -p 2222 -i {key} ops@192.0.2.7",
        f"  ssh -p 2222 -i {key} ops@192.0.2.7 sudo cat /etc/rigwright/credentials/chat.api-key   # the key",
        'For clients on your network: --listen, or "gateway" (docs/guides/gateway.md).',
    ]


@pytest.mark.usefixtures("surveyed_connections")
def test_clients_of_the_network_are_let_in_where_that_is_asked_for(
    init: Init, box: OperatorFolder, ran: RecordedVerbs
) -> None:
    ran.failing.add("check")
    done = init("root@box", "--variant", "llamacpp/one", "--listen", "8021", "--serve")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "Clients on the network: http://box:8021/v1, without a key."
    assert "not all that its variant declares is proven" in done.output
    ((_, data),) = runpy.run_path(str(box.folder / "box.py"))["rigs"]
    rig = load_rig(data["rig"])
    (listener,) = rig.gateway.listeners.values()  # type: ignore[union-attr] # it has one
    assert (listener.address, listener.port, listener.keys) == ("0.0.0.0", 8021, False)
    assert [(offer.name, offer.instances[0].port) for offer in offers_of(rig.instances, rig.gateway)] == [
        (rig.instances[0].model_name, 8022)
    ]


@pytest.mark.usefixtures("surveyed_connections")
def test_nothing_is_listened_for_where_nothing_is_served(init: Init, box: OperatorFolder) -> None:
    done = init("root@box", "--listen", "8021")
    assert (done.exit_code, (box.folder / "box.py").exists()) == (2, False)
    assert "--listen: a gateway needs a variant to offer" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "8020"], "--listen 8020 is taken on box"),
        (["--listen", "9000", "--port", "9000"], "--listen 9000 is refused: must not be the port of --port"),
        (["--listen", "0"], "must be a whole number from 1 to 65535"),
    ],
)
@pytest.mark.usefixtures("surveyed_connections")
def test_a_port_that_cannot_be_listened_on_is_refused(init: Init, options: list[str], said: str) -> None:
    done = init("root@box", "--variant", "llamacpp/one", *options)
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.usefixtures("surveyed_connections")
def test_locked_inputs_are_not_locked_again(init: Init, ran: RecordedVerbs) -> None:
    assert init("root@box", "--variant", "llamacpp/one", "--serve").exit_code == 0
    assert ran.verbs == ["validate", "deploy", "check"]


@pytest.mark.usefixtures("surveyed_connections")
def test_a_step_that_fails_is_named_and_nothing_comes_after_it(init: Init, ran: RecordedVerbs) -> None:
    ran.failing.add("validate")
    done = init("root@box", "--variant", "llamacpp/one", "--serve")
    assert done.exit_code == 1
    (last,) = done.output.splitlines()[-1:]
    assert last == "Error: box.py is written, and `rigwright validate box.py` has failed (see above)"
    assert ran.verbs == ["validate"]


@pytest.mark.usefixtures("surveyed_connections")
def test_without_a_choice_nothing_is_served(init: Init, box: OperatorFolder, ran: RecordedVerbs) -> None:
    done = init("root@box", "--serve", answer="0\n0\n2\n0\n")
    assert (done.exit_code, ran.verbs) == (1, [])
    assert "box.py is written without a variant to serve" in done.output
    assert (box.folder / "box.py").exists()
