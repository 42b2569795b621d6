"""A call, from the model's text to the request: nothing in it changes the host, the
form of the path, or the agent.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from claw_mediate.core.tool_call import MAX_TARGET, ToolRequest, build_http_request, read_arguments
from claw_mediate.core.types import UnreadableArguments
from tests.mediate.made import JSON_TEXT, NUMBER, SPACE, arguments, granted

DECLARES = {
    "type": "object",
    "properties": {"claw_id": {"type": "string"}, "a": {}},
    "required": ["claw_id"],
}


def request(text: str, **execution: Any) -> ToolRequest | str:
    return build_http_request(granted(**execution), arguments(text), "analyst-0")


def made(text: str, **execution: Any) -> ToolRequest:
    got = request(text, **execution)
    assert isinstance(got, ToolRequest), got
    return got


@pytest.mark.requirement("calls:path-segment")
@given(st.text())
@example("..")
@example("%2e%2E")
@example("%252e%252e")
@example("a/b")
@example("a\\b")
@example("a%2fb")
@example("?x#y;z@evil.test:80")
@example("//evil.test")
@example("{claw_id}")
@example("\ud83d\ude00\x00")
def test_a_path_argument_stays_one_segment_whatever_it_is(value: str) -> None:
    try:
        text = json.dumps({"a": value, "b": "x"}, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    got = request(text.decode(), path="/api/{a}/tail/{b}")
    if isinstance(got, str):
        assert "path segment" in got or "too long" in got
        return
    url = httpx2.URL("http://desk:4000/base").copy_with(raw_path=b"/base" + got.target.encode())
    segments = url.raw_path.decode().split("/")
    assert (url.host, url.port, url.query, url.fragment) == ("desk", 4000, b"", "")
    assert segments[:3] + segments[4:] == ["", "base", "api", "tail", "x"]
    assert unquote(segments[3], errors="strict") == value
    assert value not in {"", ".", ".."}


@pytest.mark.requirement("calls:path-segment")
@pytest.mark.parametrize(
    "value", ["", ".", "..", "%2e", "%2E.", "a/b", "a\\b", "a%2Fb", "a%5cb", "%00", "a\0b"]
)
def test_values_that_a_server_could_take_for_a_separator_are_refused(value: str) -> None:
    got = request(json.dumps({"a": value}), path="/{a}")
    assert (
        got
        == "the argument 'a' must be one plain path segment: text or a number, without separators."
    )


@pytest.mark.requirement("calls:path-segment")
@pytest.mark.parametrize("value", ["null", "{}", "[]", '["a"]'])
def test_only_scalars_stand_in_a_path(value: str) -> None:
    assert isinstance(request(f'{{"a":{value}}}', path="/{a}"), str)
    assert isinstance(request("{}", path="/{a}"), str)


@pytest.mark.requirement("calls:exact-numbers")
@given(NUMBER)
def test_numbers_are_spelt_as_the_model_spelt_them(number: str) -> None:
    text = f'{{"a": {number} }}'
    assert unquote(made(text, path="/{a}").target) == f"/{number}"
    assert parse_qsl(made(text).target.partition("?")[2]) == [("a", number)]
    body = made(text, method="POST").body
    assert body == f'{{"a":{number}}}'.encode()


@given(
    st.dictionaries(st.text(max_size=6), JSON_TEXT, max_size=4).map(
        lambda d: {k: d[k] for k in d if k != "claw_id"}
    )
)
def test_a_body_holds_every_argument_in_its_own_bytes(values: dict[str, str]) -> None:
    text = "{" + ",".join(f"{json.dumps(name)}: {value}" for name, value in values.items()) + "}"
    read = read_arguments(text)
    if isinstance(read, UnreadableArguments):
        assert "twice" in read.reason
        return
    got = build_http_request(granted(method="POST"), read, "a")
    assert isinstance(got, ToolRequest)
    expected = ",".join(f"{json.dumps(name)}:{value}" for name, value in values.items())
    assert got.body == f"{{{expected}}}".encode()


@pytest.mark.requirement("calls:query-and-body")
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=6).filter(lambda n: n != "claw_id"),
        st.text(max_size=8),
        max_size=4,
    )
)
def test_a_query_gives_back_what_went_in(values: dict[str, str]) -> None:
    target = made(json.dumps(values)).target
    assert (
        dict(parse_qsl(target.partition("?")[2], keep_blank_values=True, errors="strict")) == values
    )


@pytest.mark.requirement("calls:claw-id")
@pytest.mark.parametrize(
    "sent", ['{"claw_id":"evil"}', '{"cl\\u0061w_id":"evil"}', '{"claw_id":{"x":1}}', "{}"]
)
def test_claw_id_is_the_agents_and_never_the_models(sent: str) -> None:
    assert made(sent, path="/of/{claw_id}").target == "/of/analyst-0"
    assert made(sent, path="/x", schema=DECLARES).target == "/x?claw_id=analyst-0"
    assert made(sent, method="POST", schema=DECLARES).body == b'{"claw_id":"analyst-0"}'
    assert (
        made(sent, method="POST", schema=DECLARES, body_key="in").body
        == b'{"in":{"claw_id":"analyst-0"}}'
    )
    assert made(sent, path="/of/{claw_id}", schema=DECLARES).target == "/of/analyst-0"
    assert made(sent).target == "/x"
    assert made(sent, method="POST").body == b"{}"


@pytest.mark.requirement("calls:claw-id")
def test_the_model_does_not_see_claw_id_in_the_schema() -> None:
    assert granted(schema=DECLARES).visible_schema == {"type": "object", "properties": {"a": {}}}
    assert granted(schema={"required": ["a", "claw_id"]}).visible_schema == {
        "type": "object",
        "required": ["a"],
    }


@pytest.mark.requirement("calls:query-and-body")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_have_no_body(method: str) -> None:
    assert made('{"a":{"b":[1.0]}}', method=method) == ToolRequest(
        method, "/x?a=%7B%22b%22%3A%5B1.0%5D%7D", None
    )


@pytest.mark.requirement("calls:query-and-body")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_the_others_have_one_and_path_arguments_are_not_in_it(method: str) -> None:
    assert made('{"a":1,"b":2}', method=method, path="/{a}") == ToolRequest(
        method, "/1", b'{"b":2}'
    )
    assert made('{"a":1}', method=method, body_key="order") == ToolRequest(
        method, "/x", b'{"order":{"a":1}}'
    )


def test_arguments_that_make_a_url_too_long_are_refused() -> None:
    long = json.dumps({"a": "x" * MAX_TARGET})
    assert request(long, path="/{a}") == request(long) == "the arguments are too long for a URL."
    assert request(long, path="/{a}", method="POST") == "the arguments are too long for a URL."
    assert isinstance(request(long, method="POST"), ToolRequest)


@pytest.mark.requirement("calls:invalid-arguments")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":1', "valid JSON"),
        ('{"a":', "valid JSON"),
        ('{"a":1}{', "valid JSON"),
        ("{'a':1}", "valid JSON"),
        ('{"a":NaN}', "valid JSON"),
        ('{"a":-Infinity}', "valid JSON"),
        ('{"a":"\\ud800"}', "valid JSON"),
        ('{"a":01}', "valid JSON"),
        ('{"a":"\t"}', "valid JSON"),
        ("\ufeff{}", "valid JSON"),
        ("\ud800", "valid JSON"),
        ('{"a":' + "9" * 5000 + "}", "valid JSON"),
        ("[" * 100_000, "valid JSON"),
        ("[]", "one JSON object"),
        ("null", "one JSON object"),
        ('"{}"', "one JSON object"),
        ("1", "one JSON object"),
        ('{"a":1,"a":2}', "'a' stands twice"),
        ('{"a":1,"\\u0061":2}', "'a' stands twice"),
        ('{"a":[{"b":1,"b":1}]}', "'b' stands twice"),
        ('{"claw_id":1,"claw_id":2}', "'claw_id' stands twice"),
    ],
)
def test_what_is_not_one_object_is_never_taken_for_one(text: str, why: str) -> None:
    read = read_arguments(text)
    assert isinstance(read, UnreadableArguments)
    assert why in read.reason
    assert read.text == text


@pytest.mark.requirement("calls:invalid-arguments")
@given(st.text(max_size=30))
def test_any_text_is_read_or_unreadable_and_never_a_fault(text: str) -> None:
    read = read_arguments(text)
    assert (
        isinstance(read, UnreadableArguments)
        or not text.strip()
        or isinstance(json.loads(text), dict)
    )


@pytest.mark.parametrize("text", ["", " ", "\n", "{}", " { } "])
def test_blank_text_is_a_call_without_arguments(text: str) -> None:
    assert arguments(text).values == {}
    assert arguments(text).signature == "{}"


EQUAL = [
    ('{"a":1}', '{"a":1.0}'),
    ('{"a":1}', '{ "a" : 10e-1 }'),
    ('{"a":1,"b":2}', '{"b":2,"a":1}'),
    ('{"a":-0}', '{"a":0.00e9}'),
    ('{"a":"\\u00e9"}', '{"a":"é"}'),
    ('{"a":{"x":1,"y":[100]}}', '{"a":{"y":[1E2],"x":1}}'),
    ('{"a":1e99999999999999999999}', '{"a":10e99999999999999999998}'),
    ("{}", '{"claw_id":"x"}'),
]
DIFFERENT = [
    ('{"a":9007199254740993}', '{"a":9007199254740992}'),
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":1}', '{"a":true}'),
    ('{"a":0}', '{"a":false}'),
    ('{"a":1}', '{"a":-1}'),
    ('{"a":0.1}', '{"a":0.10000000000000001}'),
    ('{"a":1e400}', '{"a":1e401}'),
    ('{"a":[1,2]}', '{"a":[2,1]}'),
    ('{"a":null}', "{}"),
    ('{"a":1}', '{"a":{"#":"1e0"}}'),
]


@pytest.mark.requirement("calls:signature")
@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_arguments_have_equal_signatures(one: str, other: str) -> None:
    assert arguments(one).signature == arguments(other).signature


@pytest.mark.requirement("calls:signature")
@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_arguments_have_different_signatures(one: str, other: str) -> None:
    assert arguments(one).signature != arguments(other).signature


@pytest.mark.requirement("calls:signature")
@given(st.dictionaries(st.text(max_size=3), JSON_TEXT, max_size=4), SPACE, st.randoms())
def test_neither_key_order_nor_white_space_changes_a_signature(
    values: dict[str, str], space: str, random: Any
) -> None:
    names = list(values)
    one = "{" + ",".join(f"{json.dumps(n)}:{values[n]}" for n in names) + "}"
    random.shuffle(names)
    other = "{" + ",".join(f"{space}{json.dumps(n)}{space}:{values[n]}{space}" for n in names) + "}"
    first, second = read_arguments(one), read_arguments(other)
    if not isinstance(first, UnreadableArguments) and not isinstance(second, UnreadableArguments):
        assert first.signature == second.signature
