"""Expressions in requests: each is small multiplied out, and judging one takes little time."""

from time import thread_time

import pytest

from roles.gateway.host.router.regular_expressions import is_modest

MODEST = [
    r"^\d{4}-\d{2}-\d{2}T[0-9:.]+Z$",
    r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,63}",
    "(?:a+)?b*",
    "(?P<name>x)(?i)a+?",
    r"\(a+\)+",
    "[(a+)]+[^)]{3}",
    "a{,5}b{2,}{",
    "x{0,1000}",
    "^[a-z0-9]+(?:-[a-z0-9]+)*$",
    "^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$",
    "^(?:[0-9a-zA-Z+/]{4})*$",
    r"([A-Za-z0-9][A-Za-z0-9\-]*\.)+",
    "^.{1,2000}$",
    r"^(\d{1,3}\.){3}\d{1,3}$",
    "(a{100}){100}",
    "((a{20}){20}){20,}",
    "(a?){0,63}",
    "(a+)+b",
    "(a+)*",
    "(a{9}){9}",
    "((a)*|b){9}",
    r"(a\)b+)+",
    r"((a)\2)*",
    "(a+)+?",
]


IMMODEST = [
    "x{0,2001}",
    "x{2001,}",
    "x{99999999999}",
    "(.{0,1000}){0,1000}x",
    "(a{100}){101}",
    "((a{20}b){20}){30}",
    "((a{20}){20}){30,}",
    "(a?){0,64}",
    "(a?b?){33}",
    "(a+){65}",
    "(a*)*",
    "(a?)+",
    "((a?)(b?))*",
    "(a|b?){2,}",
    "(|a)+",
    "(?:^)*",
    r"(\b)+",
    "(?=a)*",
    "(a{0})*",
    "(?i)*",
    "(a+)?{9}",
    "a+??",
    "a?*",
    "a{9}{9}",
    "a++",
    "*a",
    "(+a)",
    "a|*",
    "(a",
    "a)",
    "[](a+)+b",
    "[^](a+)+]",
    "[^]a",
    "[a",
    "(?#comment)a",
]


@pytest.mark.parametrize(
    ("pattern", "modest"),
    [
        *((pattern, True) for pattern in MODEST),
        *((pattern, False) for pattern in IMMODEST),
        ("", True),
        (r"(cat|dog){1,3}(, and more)?", True),
        (r"{not a repetition}", True),
        ("x{" + " " * 40 + "2001}", False),
        ("x{2000}" * 5, True),
        ("x{2000}" * 6, False),
        ("(" * 5 + "a+" + ")+" * 5, True),
        ("(" * 6 + "a+" + ")+" * 6, False),
        (r"(?x)(a+) +", False),
        (r"(?ix:(a+) +)", False),
        ("[a-z]*" * 64, True),
        ("[a-z]*" * 65, False),
        ("[a-z]?" * 65, False),
        ("(|a)" * 65, False),
        ("(a||b)" * 65, False),
        ("|".join(["cat"] * 200), True),
        ("a" * 4096, True),
        ("a" * 4097, False),
    ],
)
def test_an_expression_is_modest_that_is_small_multiplied_out(pattern: str, modest: bool) -> None:
    assert is_modest(pattern, 4096) is modest


@pytest.mark.parametrize(
    "piece",
    ["a{# , #", "{", "{#", "{1,#", "[a#", "(", "(?i", "(?<a", "(?P<#", "(a+", "|", "a?", "\\", "a{9", "a{,,#", "a{2}"],
)
def test_judging_an_expression_takes_time_that_grows_as_its_length(piece: str) -> None:
    def time(length: int) -> float:
        spaces = length // (1 + piece.count("#"))
        pattern = piece.replace("#", " " * spaces) if "#" in piece else piece * (length // len(piece))

        # of the processor alone: others share it
        def once() -> float:
            begun = thread_time()
            is_modest(pattern, length + 8)
            return thread_time() - begun

        return min(once() for _ in range(5))

    # quadratic growth takes 16 times as long, cubic growth 64 times
    assert time(8000) < 10 * time(2000) + 0.02
