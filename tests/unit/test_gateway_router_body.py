"""The router's reading of a body: no parser behind it may find another model there."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from roles.gateway.host.router import body
from roles.gateway.host.router.body import InvalidBody, beginning, read

Pairs = list[tuple[str, Any]]


@pytest.mark.parametrize(
    ("sent", "model", "span", "stream"),
    [
        (b'{"model":"a"}', "a", (9, 12), False),
        (b' {\t"model" :\r\n "a" , "stream": true}\n', "a", (15, 18), True),
        (b'{"mod\\u0065l":"a"}', "a", (14, 17), False),
        ('{"é😀":"é😀","model":"é😀"}'.encode(), "é😀", (27, 35), False),
        (b'{"model":"a\\/b \\ud83d\\ude00"}', "a/b 😀", (9, 28), False),
        (b'{"model":"a","stream":1}', "a", (9, 12), False),
        (b'{"model":"a","stream":"true"}', "a", (9, 12), False),
        (b'{"model":""}', "", (9, 11), False),
        (b'{"x":{"model":"b"},"model":"a"}', "a", (27, 30), False),
        # numbers that no machine holds, and half a character, are an engine's to judge
        (b'{"model":"a","x":[1e999,' + b"7" * 5000 + b',"\\ud83d"]}', "a", (9, 12), False),
    ],
)
def test_the_model_is_found_where_it_is(sent: bytes, model: str, span: tuple[int, int], stream: bool) -> None:
    asked = read(sent)
    assert (asked.model, asked.span, asked.stream) == (model, span, stream)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "there is no body"),
        (b"model=a", "must be a JSON object"),
        (b'["model"]', "must be a JSON object"),
        (b'\xef\xbb\xbf{"model":"a"}', "byte order mark"),
        ('{"model":"a"}'.encode("utf-16"), "not UTF-8"),
        ('{"model":"a"}'.encode("utf-16-le"), "not JSON"),
        (b'{"model":"a\xff"}', "not UTF-8"),
        (b'{"x":"\xed\xa0\x80","model":"a"}', "not UTF-8"),
        (b'{"x":"\xc0\xaf","model":"a"}', "not UTF-8"),
        (b'{"model":"a"', "not JSON"),
        (b'{"model":"a",}', "not JSON"),
        (b'{"model":"a"}}', "something follows the object, at byte 13"),
        (b'{"model":"a"}\0', "something follows the object"),
        (b'{"model":"a"}{"model":"b"}', "something follows the object"),
        (b'{"model":"a",\xc2\xa0"x":1}', "not JSON"),
        (b'{"model":"a"/**/}', "not JSON"),
        (b"{'model':'a'}", "not JSON"),
        (b'{model:"a"}', "not JSON"),
        (b'{"model":"a\nb"}', "not JSON"),
        (b'{"model":"a","x":01}', "not JSON"),
        (b'{"model":"a","x":NaN}', "it has NaN"),
        (b'{"model":"a","x":[-Infinity]}', "it has -Infinity"),
        (b"{}", "must name a model"),
        (b'{"Model":"a"}', "could be read as model"),
        (b'{"model":"a","MODEL":"b"}', "could be read as model"),
        (b'{"model":"a","model\\u0000x":"b"}', "could be read as model"),
        (b'{"model":"a","model":"a"}', "model twice"),
        (b'{"model":"a","mod\\u0065l":"b"}', "model twice"),
        (b'{"model":"a","messages":[],"messages":[]}', "messages twice"),
        (b'{"x":[{"model":"b","model":1}],"model":"a"}', "an object in the body has model twice"),
        (b'{"model":null}', "must be a text"),
        (b'{"model":5}', "must be a text"),
        (b'{"model":["a"]}', "must be a text"),
        (b'{"model":"' + b"a" * 257 + b'"}', "longer than 256"),
        (b'{"model":"a\\nb"}', "control characters"),
        (b'{"model":"a\\u0000"}', "control characters"),
        (b'{"model":"a\\u0085"}', "control characters"),
        (b'{"model":"\\ud83d"}', "half of a character"),
        (b'{"model":"a","x":' + b"[" * 200 + b"]" * 200 + b"}", "200 levels"),
        (b'{"model":"a","x":' + b'{"":' * 200 + b"1" + b"}" * 200 + b"}", "200 levels"),
        (b'{"model":"a","x":' + b"[" * 100_000, "200 levels"),
        (b'{"model":"a","x":[' + b"[]," * 1_000_000 + b"1]}", "1000000 values"),
        (b'{"model":"a","x":[' + b'"",' * 1_000_000 + b"1]}", "1000000 values"),
        (b'{"model":"a","x":' + b'[""""""' * 700_000, "200 levels deep"),
        (b'{"model":"a","' + b"x" * 257 + b'":1}', "more than 256 characters"),
        (b'{"model":"a"' + b"".join(b',"%d":1' % one for one in range(256)) + b"}", "256 members"),
    ],
)
def test_an_ambiguous_address_is_refused_in_a_sentence(sent: bytes, said: str) -> None:
    with pytest.raises(InvalidBody, match=said) as refused:
        read(sent)
    assert len(refused.value.message) < 200


def test_deep_or_long_strings_are_read() -> None:
    tricky = 'say "[[[" \\ and {\\"' * 20_000 + "," * 1_000_000
    assert read(json.dumps({"x": [tricky, "\\", "[" * 1000, tricky], "model": "a"}).encode()).model == "a"
    assert read(b'{"model":"a","x":' + b"[" * 199 + b"]" * 199 + b"}").model == "a"


def conversation(*messages: tuple[str, object], **more: object) -> str:
    said = [{"role": role, "content": content} for role, content in messages]
    return beginning(read(json.dumps({"model": "a", "messages": said, **more}).encode()))


def test_a_conversation_is_known_by_its_beginning() -> None:
    first = conversation(("system", "be brief"), ("user", "hello"))
    assert len(first) == 32
    assert first == conversation(
        ("system", "be brief"), ("user", "hello"), ("assistant", "hi"), ("user", "more"), temperature=1
    )
    assert first != conversation(("system", "be brief"), ("user", "good day"))
    assert first != conversation(("system", "be long"), ("user", "hello"))
    greeted = [("system", "s"), ("assistant", "hi")]
    assert conversation(*greeted, ("user", "1")) != conversation(*greeted, ("user", "2"))
    assert conversation(*greeted) and conversation()


@pytest.mark.parametrize("member", ["prompt", "input"])
def test_a_prompt_that_grows_is_the_same_conversation(member: str) -> None:
    texts = ["x" * 2000, "x" * 2000 + "more", "y" * 2000]
    found = [beginning(read(json.dumps({"model": "a", member: text}).encode())) for text in texts]
    assert found[0] == found[1] != found[2]


def test_a_body_without_a_conversation_has_no_beginning() -> None:
    assert beginning(read(b'{"model":"a"}')) == ""


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars | st.sampled_from(["model", '"model":"b"', '\\"', "{[", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("model"), inner),
    max_leaves=5,
)
names = st.sampled_from(["model", "stream", "messages", "Model", "model\0", "", 'mod"el']) | st.text(max_size=3)
models = st.sampled_from(["qwen3", "gpt-4o", "é😀", "", "a\nb", '"', "\\"]) | st.text(max_size=12) | scalars


def spelled(text: str, how: int) -> str:
    """A JSON text in one of its many spellings: each bit of `how` has a character escaped."""
    parts = []
    for number, one in enumerate(text):
        plain = json.dumps(one, ensure_ascii=False)[1:-1]
        escaped = json.dumps(one)[1:-1] if ord(one) > 0xFFFF else f"\\u{ord(one):04X}"
        parts.append(escaped if how >> number % 16 & 1 or 0xD800 <= ord(one) <= 0xDFFF else plain)
    return '"' + "".join(parts) + '"'


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects with members of any order and spelling, names twice, and a few bytes that are wrong."""
    space = st.sampled_from(["", "", " ", "\n\t "])
    members = draw(st.lists(st.tuples(names, values), max_size=4))
    members.insert(draw(st.integers(0, len(members))), ("model", draw(models)))
    text = ",".join(
        f"{draw(space)}{spelled(name, draw(st.integers(0, 0xFFFF)))}{draw(space)}:{draw(space)}"
        + (spelled(value, draw(st.integers(0, 0xFFFF))) if isinstance(value, str) else json.dumps(value))
        + draw(space)
        for name, value in members
    )
    sent = bytearray(f"{draw(space)}{{{text}}}{draw(space)}".encode())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(sent)))
        sent[at : at + draw(st.integers(0, 2))] = draw(
            st.sampled_from([b'"', b"\\", b",", b"{", b"}", b'"model":"x",', b"\0", b"\xff", b"NaN", b""])
            | st.binary(max_size=3)
        )
    return bytes(sent)


def outermost(sent: bytes) -> Pairs | None:
    """The members of an object as a parser of another make finds them; nothing where it is no such object."""

    class Members(list[tuple[str, Any]]):
        pass

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(sent.decode("utf-8"), object_pairs_hook=Members, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Members) else None


def has_name_twice(value: Any) -> bool:
    """Whether some object in what `outermost` finds has a name twice."""
    if not isinstance(value, list):
        return False
    if type(value) is not list:
        names = [name for name, _ in value]
        return len(names) != len(set(names)) or any(has_name_twice(one) for _, one in value)
    return any(map(has_name_twice, value))


@given(bodies() | st.binary(max_size=40))
def test_no_parser_finds_another_model_than_was_routed(sent: bytes) -> None:
    members = outermost(sent)
    try:
        asked = read(sent)
    except InvalidBody:
        # nothing is refused without a cause
        names = [name for name, _ in members or []]
        named = [value for name, value in members or [] if name == "model"]
        good = (
            len(named) == 1
            and isinstance(named[0], str)
            and len(named[0]) <= 256
            and not any(one < " " or "\x7f" <= one <= "\x9f" or "\ud800" <= one <= "\udfff" for one in named[0])
        )
        alike = [one for one in names if one.lower() == "model" or one.lower().startswith("model\0")]
        assert not good or len(names) != len(set(names)) or len(alike) > 1 or has_name_twice(members)
        return
    assert members is not None
    assert [value for name, value in members if name == "model"] == [asked.model]
    assert [value for name, value in members if name == "stream"] == [True] or not asked.stream
    first, end = asked.span
    assert sent[first : first + 1] == b'"' and json.loads(sent[first:end]) == asked.model
    # as the gateway rewrites it
    other = outermost(sent[:first] + b'"engine.gguf"' + sent[end:])
    assert other == [(name, "engine.gguf" if name == "model" else value) for name, value in members]
    beginning(asked)
    try:
        strict = from_json(sent, allow_inf_nan=False)
    except ValueError:
        return
    assert strict["model"] == asked.model


@given(st.text(max_size=40), st.integers(1, 64))
def test_where_pieces_end_makes_no_difference(text: str, size: int) -> None:
    sent = json.dumps({"x": text.encode(errors="replace").decode(), "model": "a"}, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(body, "PIECE", size)
        assert read(sent).model == "a"
        with pytest.raises(InvalidBody):
            read(sent.replace(b'"x"', b'"\xe2\x82"'))


def test_a_body_of_many_texts_takes_no_more_memory_than_others() -> None:
    sent = b'{"model":"a","x":[' + b",".join([b'"much of little"'] * 1_500_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBody, match="more than 1000000 values"):
            read(sent)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(sent)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("sent", "said"), [(b"[]" * 201 + b"]" * (8 << 20), "closes more"), (b"[" * 201 + b"]" * (8 << 20), "levels deep")]
)
def test_unbalanced_or_deep_text_is_read_no_further(sent, said, monkeypatch):
    pieces = []
    outside = body._outside

    def counted(whole: bytes | bytearray) -> Iterator[bytes]:
        for piece in outside(whole):
            pieces.append(piece)
            yield piece

    monkeypatch.setattr(body, "_outside", counted)
    with pytest.raises(InvalidBody, match=said):
        read(sent)
    assert len(pieces) == 1


@given(st.text(alphabet='ab\\"[{,', max_size=40), st.integers(1, 8))
def test_where_pieces_of_a_body_end_makes_no_difference_to_what_is_in_texts(text: str, size: int) -> None:
    sent = json.dumps({"model": text, text: [text, [text]]}).encode()
    with pytest.MonkeyPatch.context() as patched:
        whole = b"".join(body._outside(sent))
        patched.setattr(body, "PIECE", size)
        assert b"".join(body._outside(sent)) == whole == b"{: , : [, []]}"
