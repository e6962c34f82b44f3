"""systemd's reading of a unit's text: seen of versions 252 and 257."""

import pytest

from checks.unit_settings import (
    SystemCallGroups,
    canonical_shown_command,
    canonical_value,
    declared_properties,
    parse_unit_settings,
    split_quoted_words,
)

NO_GROUPS = SystemCallGroups({})
CALLS = SystemCallGroups(
    {"@system-service": frozenset({"read", "write", "reboot"}), "@privileged": frozenset({"reboot", "mount"})}
)


@pytest.mark.parametrize(
    ("line", "prop", "told"),
    [
        ("TimeoutStartSec=600", "TimeoutStartUSec", "10min"),
        ("StartLimitIntervalSec=3810", "StartLimitIntervalUSec", "1h 3min 30s"),
        ("RandomizedDelaySec=30min", "RandomizedDelayUSec", "30min"),
        ("RestartSec=0", "RestartUSec", "0"),
        ("MemoryMax=1G", "MemoryMax", "1073741824"),
        ("LimitMEMLOCK=infinity", "LimitMEMLOCK", "infinity"),
        ("LimitNOFILE=65536", "LimitNOFILE", "65536"),
        ("IPAddressDeny=any", "IPAddressDeny", "::/0 0.0.0.0/0"),
        ("IPAddressAllow=localhost", "IPAddressAllow", "127.0.0.0/8 ::1/128"),
        ("IPAddressAllow=10.77.3.0/24 10.77.3.11/32", "IPAddressAllow", "10.77.3.0/24"),
        ("SocketBindAllow=tcp:8090", "SocketBindAllow", "tcp8090"),
        ("BindPaths=/run/a", "BindPaths", "/run/a:/run/a:rbind"),
        ("BindPaths=/var/cache/a:/b", "BindPaths", "/var/cache/a:/b:rbind"),
        ("BindReadOnlyPaths=-/b -/a", "BindReadOnlyPaths", "-/a:/a:rbind -/b:/b:rbind"),
        ("RestrictAddressFamilies=none", "RestrictAddressFamilies", ""),
        ("RestrictAddressFamilies=AF_UNIX AF_INET", "RestrictAddressFamilies", "AF_INET AF_UNIX"),
        ("KillSignal=SIGTERM", "KillSignal", "15"),
        ("IOSchedulingClass=idle", "IOSchedulingClass", "3"),
        ("SystemCallErrorNumber=EPERM", "SystemCallErrorNumber", "1"),
        ("EnvironmentFile=/etc/x", "EnvironmentFiles", "/etc/x (ignore_errors=no)"),
        ("EnvironmentFile=-/run/x", "EnvironmentFiles", "/run/x (ignore_errors=yes)"),
        ("Environment=NGINX=3;4;", "Environment", '"NGINX=3;4;"'),
        ("Environment=B=1 A=2", "Environment", "A=2 B=1"),
        ("ListenStream=127.0.0.1:8020", "Listen", "127.0.0.1:8020 (Stream)"),
        (
            "OnCalendar=hourly",
            "TimersCalendar",
            "{ OnCalendar=*-*-* *:00:00 ; next_elapse=Mon 2026-11-23 03:05:26 UTC }",
        ),
        ("OnBootSec=60", "TimersMonotonic", "{ OnBootUSec=1min ; next_elapse=13h 52min 27.968680s }"),
        (
            "PathChanged=/b\nPathChanged=/a",
            "Paths",
            "/a (PathChanged)\n/b (PathChanged)",
        ),
        ("CPUQuota=50%", "CPUQuotaPerSecUSec", "500ms"),
        ("CapabilityBoundingSet=", "CapabilityBoundingSet", ""),
        ("NoNewPrivileges=true", "NoNewPrivileges", "yes"),
    ],
)
def test_a_setting_is_what_systemd_tells_of_it(line: str, prop: str, told: str) -> None:
    assert declared_properties(f"[Service]\n{line}\n", NO_GROUPS) == {prop: canonical_value(prop, told)}


def test_of_a_setting_the_last_counts_or_all_of_it() -> None:
    text = "[Service]\nType=exec\nType=notify\nBindPaths=/a\nBindPaths=/b\nReadWritePaths=/a\nReadWritePaths=\n"
    assert declared_properties(text, NO_GROUPS) == {
        "Type": "notify",
        "BindPaths": "/a:/a:rbind /b:/b:rbind",
        "ReadWritePaths": "",
    }


def test_system_calls_are_given_and_taken_back_in_order() -> None:
    text = "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged write\nSystemCallFilter=mincore\n"
    assert declared_properties(text, CALLS) == {"SystemCallFilter": "mincore read"}


def test_a_filter_may_forbid_and_allow_all_else() -> None:
    text = "SystemCallFilter=~write read\nSystemCallFilter=~mincore\nSystemCallFilter=read\n"
    found = declared_properties(text, CALLS)
    assert found == {"SystemCallFilter": canonical_value("SystemCallFilter", "~mincore write")}


def test_a_command_is_what_systemd_tells_of_it() -> None:
    text = "ExecStartPre=-+/bin/sh -c 'a $$(b)' \"%%h c\" d\n"
    told = (
        "{ path=/bin/sh ; argv[]=/bin/sh -c a $$(b) %h c d ; flags=ignore-failure privileged ; start_time=[n/a] ; "
        "stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
    )
    assert declared_properties(text, NO_GROUPS) == {"ExecStartPre": canonical_shown_command(told)}
    assert canonical_shown_command(told.replace("privileged", "")) != canonical_shown_command(told)


def test_another_program_under_the_same_words_is_another_command() -> None:
    told = "{ path=/srv/x ; argv[]=/bin/x --a ; flags= ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 }"
    assert declared_properties("ExecStart=/bin/x --a\n", NO_GROUPS)["ExecStart"] != canonical_shown_command(told)
    assert (
        canonical_shown_command(told.replace("/srv/x", "/bin/x"))
        == declared_properties("ExecStart=/bin/x --a\n", NO_GROUPS)["ExecStart"]
    )


def test_words_keep_what_is_in_quotes() -> None:
    assert split_quoted_words(r"""a 'b "c"' "d \"e\" \n" f=g\ h""") == ["a", 'b "c"', 'd "e" \n', "f=g\\ h"]


def test_comments_and_sections_set_nothing() -> None:
    assert list(parse_unit_settings("# A=1\n[Unit]\n; B=2\nC = 3\nD=\\\n  4\n")) == [("C", "3"), ("D", " 4".strip())]
