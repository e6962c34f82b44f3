"""How Docker's daemon is started on a host, and what of that no daemon.json goes with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rigwright.containers import daemon_json
from rigwright.containers.container_facts import CDI_SPEC, ContainerFacts
from rigwright.containers.daemon_json import Options
from rigwright.model.catalog_schema import Card

PROGRAMS = ("/usr/bin/dockerd", "/usr/sbin/dockerd")  # as packages have it
FOLDERS = (CDI_SPEC.rpartition("/")[0], f"/var{CDI_SPEC.rpartition('/')[0]}")
# Flags that give an option of another name, and letters that do (docs.docker.com/reference/cli/dockerd). Options that
# give a runtime are not among them: of these dockerd takes both.
NAMED = {
    "feature": "features",
    "host": "hosts",
    **{
        name: f"{name}s"
        for name in (
            *("allow-nondistributable-artifact", "authorization-plugin", "cdi-spec-dir", "default-address-pool"),
            *("default-network-opt", "default-ulimit", "dns-opt", "exec-opt", "host-gateway-ip", "insecure-registry"),
            *("label", "log-opt", "node-generic-resource", "registry-mirror", "storage-opt"),
        )
    },
    **{"insecure-registry": "insecure-registries"},
}
LETTERS = {
    "b": "bridge",
    "D": "debug",
    "G": "group",
    "H": "hosts",
    "l": "log-level",
    "p": "pidfile",
    "s": "storage-driver",
}
TRUTHS = frozenset("Dv")  # letters without a value
CONFIG = "config-file"


def parse_daemon_flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Option and value of each flag that a daemon was started with, as a daemon.json calls the option.

    Args:
        words: Its command line's, the program first.
    """
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and rest and not rest[0].startswith("-"):
                value = rest[0]
            yield NAMED.get(name, name), value
        elif word.startswith("-"):
            letters = word[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                value = ""
                if letter not in TRUTHS:
                    value = letters.removeprefix("=") or (rest[0] if rest else "")
                    letters = ""
                yield LETTERS.get(letter, letter), value


def is_keeping_containers(facts: ContainerFacts, options: Options) -> bool:
    """Whether the containers of a daemon before it stay with one that is started with these options."""
    return (
        options.get("live-restore") is True
        or dict(parse_daemon_flags(facts.arguments)).get("live-restore", "false") != "false"
    )


def is_ending_containers(facts: ContainerFacts, options: Options) -> bool:
    """Whether containers of other users end, or may, where Docker's daemon is started again with these options."""
    return facts.has_running_containers and not (facts.live_restore and is_keeping_containers(facts, options))


def find_daemon_problems(
    cards: tuple[Card, ...], facts: ContainerFacts, there: Options, ours: Collection[str]
) -> Iterator[str]:
    """Why a host's Docker cannot have ours, each with what to do.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        there: Its daemon.json.
        ours: Names of options that are to be in it.
    """
    if facts.snap:
        yield "Docker is installed as a snap, which uses the same socket: `snap remove docker`"
    if facts.program and facts.program not in PROGRAMS:
        yield f"docker.service runs {facts.program}, which is not from a package: remove that Docker and its unit"
    flags = dict(parse_daemon_flags(facts.arguments))
    cure = "remove that flag from its unit (`systemctl cat docker.service`) or from /etc/default/docker"
    if (other := flags.pop(CONFIG, daemon_json.PATH)) != daemon_json.PATH:
        yield (
            f"the Docker daemon is started with --{CONFIG} {other}, but Rigwright's options go into "
            f"{daemon_json.PATH}: {cure}"
        )
    if both := sorted(set(ours) & set(flags)):
        yield (
            f"the Docker daemon is started with a flag for {', '.join(both)}, and would fail if {daemon_json.PATH} set "
            f"it, too: {cure}"
        )
    folders = there.get("cdi-spec-dirs") or FOLDERS
    if cards and not (isinstance(folders, list | tuple) and set(FOLDERS) & set(map(str, folders))):
        yield f"cdi-spec-dirs in {daemon_json.PATH} lacks {FOLDERS[0]}, where the CDI spec is: add it"
