"""The filter of system calls that a container gets: podman's own, without namespaces, mounts and keys."""

from rigwright.engines.image.calls import NEVER, SPACES, narrowed
from rigwright.system_calls import FORBIDDEN

ALLOW = "SCMP_ACT_ALLOW"
PROFILE = {
    "defaultAction": "SCMP_ACT_ERRNO",
    "defaultErrnoRet": 38,
    "archMap": [{"architecture": "SCMP_ARCH_X86_64"}],
    "syscalls": [
        {
            "names": ["clone", "clone3", "io_uring_setup", "mount", "read", "unshare"],
            "action": ALLOW,
            "args": [],
            "includes": {},
        },
        {"names": ["setns"], "action": ALLOW, "args": [], "includes": {"caps": ["CAP_SYS_ADMIN"]}},
        {"names": ["setns"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
    ],
}
FOUND = narrowed(PROFILE, [*FORBIDDEN])


def rules(name: str) -> list[dict[str, object]]:
    return [rule for rule in FOUND["syscalls"] if name in rule["names"]]


def test_calls_for_namespaces_mounts_and_keys_are_refused_for_every_user() -> None:
    for name in (*NEVER, *FORBIDDEN):
        (rule,) = rules(name)
        assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", 1)


def test_threads_and_processes_are_made_but_in_no_namespaces_of_their_own() -> None:
    (rule,) = rules("clone")
    (judged,) = rule["args"]  # type: ignore[misc] # one dictionary
    assert rule["action"] == ALLOW
    # CLONE_NEWUSER among them, and none of those that threads are made with
    assert judged == {"index": 0, "value": SPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    assert SPACES & 0x10000000
    assert not SPACES & 0x003D0F00
    (other,) = rules("clone3")
    assert (other["action"], other["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)


def test_the_rest_stays_as_podman_has_it() -> None:
    assert {**FOUND, "syscalls": []} == {**PROFILE, "syscalls": []}
    (rule,) = rules("read")
    assert rule == {"names": ["read"], "action": ALLOW, "args": [], "includes": {}}
