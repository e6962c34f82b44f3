"""Lines that a host's users write, as long as they like, take the survey as long as they are, and no longer."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checks.survey.base_system import managed_words_pattern
from checks.survey.host import command_effects, scheduled_jobs, script_relative_paths
from rigwright.model.rig import account_names
from tests.unit.samples import sample_instance, sample_rig

BOX = sample_rig(sample_instance())
ABOUT = re.compile(managed_words_pattern(BOX.roots, account_names(BOX)))
LOOKS: dict[str, Callable[[str], object]] = {
    "ends": command_effects.ends_box,
    "cards": command_effects.sets_cards,
    "ours": lambda line: command_effects.touches(line, ABOUT, BOX.roots.software),
    "names": scheduled_jobs.named,
    "told": lambda line: scheduled_jobs.describe_line(Path("x"), line),
}
# What an expression may begin with, and lack the end of
WORDS = (
    *("systemctl ", "systemctl -", "shutdown ", "shutdown -", "init ", " ", ";", "/", "-r"),
    *("nvidia-smi ", "nvidia-persistenced ", "modprobe -r", "rm ", "sed ", "cp ", "mkfs."),
    *(f"{BOX.roots.software}/", f'"{BOX.roots.software}/', "rigwright-chat", "rig", "-"),
    *("tar -", "git -C", "curl --output=", "cd ", "tar -x", "xxxx", "OOOO", "cpio -i", "!", "a=", "'", ")"),
    *("token ", "password:"),
)
PLACES = range(len(WORDS))
"""How far one may be from the one that follows it: all pairs, once each."""
TIMES = 8


def survey_seconds(look: Callable[[str], object], line: str) -> float:
    """Seconds of this process's own that a look takes: the least of some, as others disturb it."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        look(line)
        found.append(time.process_time() - begun)
    return min(found)


def grows(look: Callable[[str], object], piece: str, length: int) -> float:
    """How many times as long a look at a line takes that is TIMES as long."""
    return survey_seconds(look, piece * (length * TIMES // len(piece))) / survey_seconds(
        look, piece * (length // len(piece))
    )


@pytest.mark.parametrize("look", [LOOKS[name] for name in ("ends", "cards", "ours")], ids=["ends", "cards", "ours"])
@pytest.mark.parametrize("apart", [pytest.param(n, marks=pytest.mark.all_only if n > 1 else ()) for n in PLACES])
def test_a_look_at_a_line_takes_as_long_as_the_line_is(look: Callable[[str], object], apart: int) -> None:
    # what takes its square grows by TIMES as much again
    for first, second in zip(WORDS, (*WORDS[apart:], *WORDS[:apart]), strict=True):
        assert grows(look, first + second, 1 << 11) < TIMES**1.5, first + second


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("piece", WORDS)
def test_a_script_of_one_long_line_is_looked_through(look: Callable[[str], object], piece: str) -> None:
    assert grows(look, piece, (1 << 16) // TIMES) < TIMES**1.5


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("systemctl --user list-units; systemctl -i hibernate", True),
        ("systemctl stop x; echo halting", False),
        ("shutdown -h now; shutdown -r now", True),
        ("shutdown -h +5 || shutdown --reboot", True),
        ("shutdown now -r", False),
        ("telinit  0", True),
    ],
)
def test_each_command_of_a_line_ends_the_box_by_itself(line: str, ends: bool) -> None:
    assert command_effects.ends_box(line) == ends


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nvidia-smi -q; x -pm 1", ""),
        ("sleep 5; nvidia-smi -i 0 -pl 300 -pm 1", "nvidia-smi -i 0 -pl 300 -pm"),
        ("nvidia-persistenced --user x --no-persistence-mode", "nvidia-persistenced --user x --no-persistence-mode"),
        ("nvidia-persistenced --user x", ""),
        ("rmmod nvidia_uvm", "rmmod nvidia"),
    ],
)
def test_the_command_that_sets_cards_is_told(line: str, said: str) -> None:
    assert command_effects.sets_cards(line) == said


@pytest.mark.parametrize(
    ("line", "touched"),
    [
        ("rm -rf /srv/models/x", True),
        ("ls /srv/models; rm x", False),
        ("find /srv/models -name x -delete", True),
        ("find /var -delete; ls /srv/models", True),
        ("cp /srv/models/x /backup", False),
        ("cp /backup/x /srv/models/x ", True),
        ("cp -t /srv/models/x /backup/x", True),
        ("cp --target-directory=/srv/models/x /backup/x", True),
        ("install -m 644 /backup/x /srv/models/x", True),
        ("tar -C /srv/models -xzf /backup/x.tgz", True),
        ("tar xzf /backup/x.tgz --directory /srv/models", True),
        ("tar -C /srv/models -czf /backup/x.tgz .", False),
        ("tar czf /backup/x.tgz /srv/models", False),
        ("tar czf /srv/models/x.tgz /etc", True),
        ("tar -tf /srv/models/x.tgz", False),
        ("curl -fsSLo /srv/models/x https://a.example/x", True),
        ("curl --output=/srv/models/x https://a.example/x", True),
        ("curl https://a.example -d @/srv/models/x", False),
        ("curl -o - --unix-socket /run/rigwright_gateway/x http://a/", False),
        ("wget -qP /srv/models https://a.example/x", True),
        ("wget -qO- https://a.example/x; ls /srv/models", False),
        ("unzip -o -d /srv/models /backup/x.zip", True),
        ("unzip -l /srv/models/x.zip", False),
        ("git -C /srv/models pull -q", True),
        ("git -C /srv/models -c a.b=c status", False),
        ("git clone -q https://a.example/x /srv/models/x", True),
        ("cpio -D /srv/models -idm", True),
        ("find /srv/models | cpio -o", False),
        ("cd /srv/models && wget -q https://a.example/x", True),
        ("cd /srv/models && curl -sO https://a.example/x", True),
        ("cd /srv/models && curl -XPOST https://a.example/", False),
        ("cd /srv/models && tar -xf /backup/x.tar", True),
        ("cd /srv/models && git pull", True),
        ("cd /srv/models && unzip /backup/x.zip", True),
        ("cd /srv/models && cp /backup/x .", True),
        ("cd /srv/models && rsync -a . nas:models", False),
        ('cd /srv/models && cp -a . "/mnt/backup"', False),
        ('cd /srv/models && rsync -a . "$NAS"', False),
        ("cd /srv/models && rm -f '/tmp/x'", False),
        ('cd "/srv/models" && rm -f "x"', True),
        ("curl -fsSL https://x.example/y.tgz | tar xzC /srv/models", True),
        ("tar xfC /backup/x.tar /srv/models", True),
        ("tar --remove-files -czf /backup/x.tgz /srv/models/old", True),
        ("tar --create --file=/srv/models/x.tar /etc", True),
        ("curl https://x.example -#Lo /srv/models/x", True),
        ("cd /srv/models && rm -rf .git", True),
        ("cd /srv/models && rm old.tar", True),
        ("cd /srv/models/git && rm -rf *", True),
        ("cd /srv/models && ls -l; cd /root/git && rm x", False),
        ("cd /srv/models && cat install.log", False),
        ("cd /srv/models && tail wget-log", False),
        ("cd /srv/models && apt-get install -y jq", False),
        ("(cd /srv/models && du -sh .); cp a b", False),
        ("cd /srv/models && ls; cd; rm x", False),
        ("cd /srv/models && cd sub && rm -rf *", True),
        ("cd -P /srv/models && rm x", True),
        ("cd /srv/models && echo a > x", True),
        ("cd /srv/models && echo a >> /tmp/x 2>&1", False),
        ("cd /srv/models && git clone https://x.example/y", True),
        ("git clone https://x.example/y /srv/models/x --depth 1", True),
        ("git -C /srv/models push nas", False),
        ("cd /srv/models && wget --spider https://x.example/y", False),
        ("find /etc | cpio -pdm /srv/models/x", True),
        ("cd /srv/models && rm -rf x", True),
        ("cd /srv/models && chmod -R 777 .", True),
        ("cd /srv/models && chmod 644 /tmp/x", False),
        ("cd /srv/models && ls | tee /tmp/x > /dev/null", False),
        ("cd /srv/models && rm /tmp/x", False),
        ("rsync -a /backup/x /srv/models/ --delete", True),
        ("cd /srv/models; cd /backup && wget -q https://a.example/x", False),
        ("cd /srv/models && tar -cf /backup/x.tar .", False),
        ("sed -i s/a/b/ /etc/rigwright/x", True),
        ("sed s/a/b/ /etc/rigwright/x", False),
        ("systemctl --no-pager  status rigwright-chat", False),
        ("systemctl --now disable rigwright-chat", True),
        ("systemctl status x; systemctl stop rigwright.target", True),
        ("exit=/opt/rigwright/engines/a/bin/llama-server", True),
        ("ls /opt/rigwright/engines", False),
        ("backup-of/opt/rigwright/engines/a/bin/x", False),
    ],
)
def test_what_is_done_to_ours_is_told_from_what_is_read(line: str, touched: bool) -> None:
    assert command_effects.touches(line, ABOUT, BOX.roots.software) == touched


@pytest.mark.parametrize(
    ("script", "changed"),
    [
        ("cd /srv/models\nrm -rf x", "rm -rf x"),
        ("cd /srv/models || exit 1\nfor f in *; do\nrm old\ndone", "rm old"),
        ("cd /srv/models\ncd sub\ntar xf /backup/x.tar", "tar xf /backup/x.tar"),
        ("cd /srv/models\nn=$(ls | wc -l)\nrm -rf old", "rm -rf old"),
        ("cd /srv/models/$(date +%F)\nrm -rf *", "rm -rf *"),
        ("cd /srv/models\necho 'done :)'\nrm -rf x", "rm -rf x"),
        ("rm /srv/models/x; cd /srv/models\nrm -rf sub", "rm -rf sub"),
        ("if cd /srv/models; then\nfind . -name x -delete\nfi", "find . -name x -delete"),
        ("cd /srv/models\nls | xargs -n1 rm -rf", "ls | xargs -n1 rm -rf"),
        ("cd /srv/models\nsed -i s/a/b/ config.json", "sed -i s/a/b/ config.json"),
        ("cd /srv/models\ndd if=/dev/zero of=x", "dd if=/dev/zero of=x"),
        ("cd /srv/models\nsudo rm x 2>/dev/null", "sudo rm x 2>/dev/null"),
        ("cd /srv/models\nrm \\\n-rf \\\nx", "rm  -rf  x"),
        ("cd /srv/models\ndate > stamp", "date > stamp"),
        # it goes elsewhere, or somebody else goes there
        ("cd /srv/models\ncd /var/backups\nrm -rf x", ""),
        ("cd /srv/models\ncd -\nrm -rf x", ""),
        ("cd /srv/models\ncd ../../tmp\nrm -rf x", ""),
        ("(cd /srv/models; ls)\nrm -rf x", ""),
        ("(cd /srv/models; rm x)\nrm -f a", ""),
        ("cd /srv/models; rm x; cd /tmp\nrm -f a", ""),
        ("pushd /srv/models\nls\npopd\nrm -rf x", ""),
        ("look() {\ncd /srv/models\nls\n}\nrm -rf x", ""),
        ("ssh nas 'cd /srv/models && ls -l'\nrm -f stamp", ""),
        ("echo 'now cd /srv/models and look'\ntouch done", ""),
        # to read is no harm, nor what is written elsewhere
        ("cd /srv/models\nsha256sum * > /tmp/sums 2>&1\nrm /tmp/sums\ndu -sh . # rm x", ""),
        ("cd /srv/models\nrsync -a . \\\nbackup@nas:/models/", ""),
        ("cd /srv/models\ncp -a x /backup/ 2>/dev/null", ""),
        ("cd /srv/models\ndu -s * | awk '$1 > 1000000 {print $2}'", ""),
        ("cd /srv/models\n[[ $a > 90 ]] && logger x\necho 'models -> nas'", ""),
        ("cd /srv/models\ncommand -v wget >/dev/null || exit 1\necho 'install broken' | mail root", ""),
        ("cd /srv/models\ncat << END > /tmp/x\nrm old files\nEND\nls", ""),
        # by themselves they are what others are, and are told as those
        ("rm x", ""),
        ("cd /srv/models && rm x", ""),
    ],
)
def test_where_a_script_has_gone_its_next_lines_are(script: str, changed: str) -> None:
    said = [*(("one", line) for line in script.split("\n")), ("other", "rm -rf x")]
    assert [line for _, line in script_relative_paths.find_relative_changes(said, ABOUT)] == (
        [changed] if changed else []
    )


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("D=/srv/models\nrm -rf $D/x", "rm -rf /srv/models/x"),
        ("export D='/srv/models'\nrm -rf \"${D}\"/x", 'rm -rf "/srv/models"/x'),
        ("readonly D=/srv\nM=$D/models; rm -rf ${M%/}/x", "M=/srv/models; rm -rf /srv/models/x"),
        ("M=/srv/models\nO=$M/old\nfind $O -delete", "find /srv/models/old -delete"),
        ("if [ $1 ]; then M=/srv/models; fi\nrm $M/*", "rm /srv/models/*"),
        # what it was set to before, or in another script, is not what it is
        ("M=/srv/models\nM=/home/me/old/x\nrm -rf $M", ""),
        ("rm -rf $M\nM=/srv/models", ""),
        ("M=/srv/models\ndu -s $M", ""),
        ("M=/srv/models\nrm -rf $MORE ${N}", ""),
        ("T=/aB3xQ9\nM=/srv/models\ncurl $T > $M", "curl $T > /srv/models"),
    ],
)
def test_a_variable_is_what_it_was_set_to(script: str, seen: str) -> None:
    said = [*(("one", line) for line in script.split("\n")), ("other", "rm -rf $M $D")]
    found = [
        line
        for _, line in script_relative_paths.meant(said, ABOUT)
        if command_effects.touches(line, ABOUT, "/opt/rigwright")
    ]
    assert found == ([seen] if seen else [])


def test_variables_that_hold_each_other_do_not_grow() -> None:
    lines = ["A=/srv/models", *["A=$A$A$A$A$A$A$A$A"] * 1000, "A=/srv/models", "$A" * 2000]
    said = [("one", line) for line in lines]
    assert max(len(line) for _, line in script_relative_paths.meant(said, ABOUT)) < 3 * script_relative_paths.LONGEST


@pytest.mark.parametrize("part", ["cd /srv/models;", "(", "rm x ", "a>", "'", "\\", "x=$(", "<<"])
def test_a_script_of_long_lines_takes_as_long_as_it_is(part: str) -> None:
    def took(times: int) -> float:
        said = [
            ("one", "cd /srv/models"),
            *(("one", part * (script_relative_paths.LONGEST // len(part))) for _ in range(times)),
        ]
        began = time.process_time()
        list(script_relative_paths.find_relative_changes([*said, ("one", part * 1_000_000)], ABOUT))
        return time.process_time() - began

    took(1)
    assert took(20) < 60 * max(took(2), 0.002)
