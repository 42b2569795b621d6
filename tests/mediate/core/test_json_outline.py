"""The outline of a large document: what is read of it is what is read of the whole, and no decoder
gets its long texts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import repeat
from types import ModuleType
from typing import Any

import msgspec
import pytest

from claw_mediate.core import cost, json_outline, json_splice, model_names, object_ids
from claw_mediate.core.json_outline import (
    JsonSpliceError,
    Outline,
    TooManyValuesError,
    decode_request_outline,
)
from claw_mediate.core.json_splice import element_spans, list_members
from claw_mediate.dialects import members as raw_members
from claw_mediate.dialects import model_only
from claw_mediate.dialects.anthropic import request as messages
from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.openai import functions
from claw_mediate.dialects.openai import request as chat
from claw_mediate.dialects.responses import request as responses

MIB = 1 << 20
ANY = msgspec.json.Decoder(Any)
LETTERS = [*"xxxxxxxx", '"', "\\", "/", "\n", "é", "漢", "😀", ",", "[", "{", ":"]
DIALECTS = {
    "chat": (chat, "messages"),
    "messages": (messages, "messages"),
    "responses": (responses, "input"),
}


def random_text(chance: random.Random) -> str:
    length = chance.choice([0, 1, 5, 60, 70, 1000, 1020, 1030, 3000])
    is_plain = chance.random() < 0.7
    return "".join("x" if is_plain else chance.choice(LETTERS) for _ in range(length))


def random_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.4 or depth > 3:
        return random_text(chance)
    if kind < 0.5:
        return chance.choice([1, -2.5e3, None, True])
    children = range(chance.randrange(4))
    if kind < 0.75:
        return [random_value(chance, depth + 1) for _ in children]
    return {f"{random_text(chance)}{index}": random_value(chance, depth + 1) for index in children}


def random_document(seed: int) -> bytes:
    chance = random.Random(seed)
    document = {f"member {index}": random_value(chance) for index in range(4)}
    indent = chance.choice([None, 1])
    return json.dumps(document, ensure_ascii=chance.random() < 0.5, indent=indent).encode()


def request_of(dialect: str, texts: list[str]) -> bytes:
    """Return a request in which user and assistant said these texts in turn."""
    roles = ["user", "assistant"]
    said = [{"role": roles[index % 2], "content": each} for index, each in enumerate(texts)]
    own = {"max_tokens": 9} if dialect == "messages" else {}
    return json.dumps({"model": "m", **own, DIALECTS[dialect][1]: said}).encode()


class Recorder:
    """A decoder that notes the longest document that it gets."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.longest = 0

    def decode(self, document: Any) -> Any:
        self.longest = max(self.longest, len(document))
        return self._decoder.decode(document)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outline every document, in steps of a few bytes."""
    monkeypatch.setattr(json_outline, "_WINDOW", 50)
    for module in (json_outline, json_splice):
        monkeypatch.setattr(module, "MAX_WHOLE_BYTES", 0)


@pytest.mark.requirement("bodies:outline")
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(60))
def test_members_elements_and_values_of_an_outline_are_those_of_its_document(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = random_document(seed)
    members = list_members(document)
    raw = decode_request_outline(msgspec.json.Decoder(msgspec.Raw), document)
    assert json.loads(bytes(raw)) == json.loads(document)
    spans = [
        element_spans(document, member.start)
        for member in members
        if document[member.start] == ord("[")
    ]
    inner = [
        list_members(document, member.start)
        for member in members
        if document[member.start] == ord("{")
    ]

    for module in (json_outline, json_splice):
        monkeypatch.setattr(module, "MAX_WHOLE_BYTES", len(document))
    assert members == list_members(document)
    assert spans == [
        element_spans(document, member.start)
        for member in members
        if document[member.start] == ord("[")
    ]
    assert inner == [
        list_members(document, member.start)
        for member in members
        if document[member.start] == ord("{")
    ]


TEXTS = {
    "plain": "A long text. " * (MIB // 8),
    "not ASCII": "é漢" * (MIB // 8),
    "escapes": "\n" * (MIB * 3 // 4),
    "quotes": '"\\' * (MIB * 3 // 8),
    "json": '{"models": ["x"], "file_id": "y"}' * (MIB // 25),
}


def find_names(body: bytes) -> None:
    model_names.find_named_models(body[:-1] + b',"models":["b"]}')


def find_ids(body: bytes) -> None:
    assert object_ids.find_named_objects(body[:-1] + b',"file_id":"f"}', object_ids.DIALECT_RULES)


def read_other(body: bytes) -> None:
    model_only.read_other_path(body, "application/json")


def measure(body: bytes) -> None:
    cost.measure_request(body, "/v1/chat/completions")


def split(body: bytes) -> None:
    raw_members.split_array(b"[" + body + b"]")


def write_functions(body: bytes) -> None:
    functions.functions_as_tool_messages(
        b'[{"role":"assistant","function_call":{"name":"f"}},' + body + b"]"
    )


DECODERS: list[tuple[ModuleType, str, str, Callable[[bytes], object]]] = [
    (chat, "_read_request", "chat", chat.read_request),
    (messages, "_read_request", "messages", messages.read_request),
    (responses, "_read_request", "responses", responses.read_request),
    (model_only, "_required_decoder", "chat", model_only.read_model),
    (model_only, "_optional_decoder", "chat", read_other),
    (model_names, "_decoder", "chat", find_names),
    (object_ids, "_decoder", "chat", find_ids),
    (cost, "_limits_decoder", "chat", measure),
    (json_splice, "_raw_values", "chat", list_members),
    (raw_members, "_array_decoder", "chat", split),
    (functions, "_read_messages", "chat", write_functions),
]


@pytest.mark.requirement("bodies:outline")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(("module", "name", "dialect", "work"), DECODERS)
def test_no_decoder_gets_the_long_texts_of_a_large_request(
    module: ModuleType,
    name: str,
    dialect: str,
    work: Callable[[bytes], object],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder(getattr(module, name))
    monkeypatch.setattr(module, name, recorder)
    request = request_of(dialect, [text])
    assert len(request) > json_outline.MAX_WHOLE_BYTES
    work(request)
    assert recorder.longest < 1000


@pytest.mark.requirement("bodies:outline")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_large_conversation_has_the_words_and_the_evidence_that_it_has_as_a_whole(
    dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        f"{index} {text[:300_000]}"
        for index, text in enumerate([*TEXTS.values(), "The last one."] * 2)
    ]
    body = request_of(dialect, texts)
    assert len(body) > json_outline.MAX_WHOLE_BYTES
    outlined = DIALECTS[dialect][0].read_request(body)
    monkeypatch.setattr(json_outline, "MAX_WHOLE_BYTES", len(body))
    whole = DIALECTS[dialect][0].read_request(body)
    assert outlined.user_texts == whole.user_texts == tuple(texts[::2])
    assert outlined.evidence == whole.evidence
    assert outlined.prefill_text == whole.prefill_text


@pytest.mark.requirement("bodies:outline")
def test_a_text_of_more_than_four_megabytes_is_read_as_its_beginning_and_its_digest() -> None:
    def read(text: str) -> str:
        return chat.read_request(request_of("chat", [text, "Yes?", "Go on."])).user_texts[0]

    text = "Once upon a time " * 300_000
    assert read(text).startswith(text[:1000])
    assert len(read(text)) < 2000
    assert read(text) == read(text)
    assert read(text) != read(text + "!")


@pytest.mark.requirement("bodies:outline")
def test_nobody_can_write_a_stand_in() -> None:
    shown = Outline(json.dumps({"a": "x" * MIB}).encode()).text
    stand_in = json.loads(shown)["a"]
    again = decode_request_outline(
        ANY, json.dumps({"a": stand_in, "b": "y" * (MIB - 100), "c": "z" * 2000}).encode()
    )
    assert again == {"a": stand_in, "b": "y" * (MIB - 100), "c": "z" * 2000}


@pytest.mark.requirement("bodies:outline")
@pytest.mark.parametrize("wrong", [rb"\x", rb"\u12", b"\t", rb"\ud800", rb"\udc00", b'"'])
def test_a_long_text_that_is_no_json_is_refused(wrong: bytes) -> None:
    body = request_of("chat", ["x" * 2 * MIB])
    with pytest.raises((JsonSpliceError, UnreadableRequestError)):
        chat.read_request(body.replace(b"x" * MIB, b"x" * MIB + wrong, 1))


PARTS = {
    "objects": "{}",
    "lists": "[]",
    "members": '{"a":1}',
    "numbers": "1",
    "strings": '"a"',
    "nested": "[[[[1]]]]",
}


@pytest.mark.requirement("bodies:too-many-values")
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_large_request_of_too_many_parts_is_refused_before_anything_is_decoded(
    dialect: str, part: str
) -> None:
    head = request_of(dialect, ["Hi."])[:-1]
    body = head + b',"metadata":[' + ",".join(repeat(part, 600_000)).encode() + b"]}"
    with pytest.raises(TooManyValuesError):
        DIALECTS[dialect][0].read_request(body)


@pytest.mark.requirement("bodies:too-many-values")
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_of_too_many_parts_no_name_and_no_id_is_looked_for(part: str) -> None:
    head = request_of("chat", ["Hi."])[:-1]
    body = head + b',"metadata":[' + ",".join(repeat(part, 600_000)).encode() + b"]}"
    with pytest.raises(TooManyValuesError):
        object_ids.find_named_objects(body[:-1] + b',"file_id":"f"}', object_ids.DIALECT_RULES)
    with pytest.raises(TooManyValuesError):
        model_names.find_named_models(body)
    with pytest.raises(UnreadableRequestError, match="300000 members"):
        model_only.read_other_path(body, "application/json")


@pytest.mark.requirement("bodies:too-many-values")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_forty_thousand_messages_and_prompts_of_tokens_are_not_too_many(dialect: str) -> None:
    body = request_of(
        dialect, ["What {now}, or [then], said she: Nothing, nothing, nothing."] * 40_000
    )
    assert len(body) > json_outline.MAX_WHOLE_BYTES
    DIALECTS[dialect][0].read_request(body)
    tokens = json.dumps({"model": "m", "input": [[12345] * 1000] * 300}).encode()
    assert model_only.read_other_path(tokens, "application/json") is not None
