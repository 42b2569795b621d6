"""The outline under attack: a document is read and edited by its outline as it is as a whole.

A small document takes the way of a large one here, in windows and pieces of some bytes: every
string lies across a border.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claw_contract.redaction.redactor import LongTextError, Redactor
from claw_contract.secret import Secret
from claw_mediate.core import cost, json_outline, json_pieces, json_splice, model_names, object_ids
from claw_mediate.core.json_outline import (
    JsonSpliceError,
    TooManyValuesError,
    decode_request_outline,
)
from claw_mediate.core.object_ids import (
    DIALECT_RULES,
    EVAL_RULES,
    OTHER_RULES,
    UnreadableObjectsError,
)
from claw_mediate.dialects import model_only
from claw_mediate.dialects.anthropic import request as messages
from claw_mediate.dialects.base import RunnerRequest, UnreadableRequestError
from claw_mediate.dialects.kept import KeptReferences
from claw_mediate.dialects.openai import functions
from claw_mediate.dialects.openai import request as chat
from claw_mediate.dialects.responses import request as responses

MAX_SHORT: Final = 128
REFUSALS = (
    JsonSpliceError,
    UnreadableRequestError,
    UnreadableObjectsError,
    msgspec.DecodeError,
    UnicodeDecodeError,
)
NAMES = [
    *(
        "model",
        "Model",
        "models",
        "fallbacks",
        "preset",
        "agent_id",
        "extra_body",
        "plugins",
        "tools",
        "parameters",
    ),
    *(
        "file_id",
        "fileId",
        "FILE-IDS",
        "file_uri",
        "container",
        "vector_store_ids",
        "previous_response_id",
        "conversation",
    ),
    *(
        "id",
        "type",
        "role",
        "name",
        "content",
        "text",
        "messages",
        "input",
        "system",
        "instructions",
        "metadata",
        "arguments",
    ),
    *(
        "function",
        "functions",
        "function_call",
        "tool_choice",
        "n",
        "max_tokens",
        "prompt",
        "stream",
        "requests",
        "tool_calls",
    ),
]
VALUES = [
    *(
        "user",
        "assistant",
        "system",
        "function",
        "tool_use",
        "text",
        "message",
        "file_id",
        "responses",
        "item_reference",
    ),
    *(
        "files/a",
        "https://example.org/v1beta/files/b?c",
        "model",
        "text-0123456789abcdef-00000000",
        "@preset/x",
        "",
    ),
]
PADDINGS = [
    "x",
    "\\",
    '"',
    "é",
    "漢",
    "😀",
    "\n",
    "/",
    ":",
    " ",
    "\x7f",
    '":{',
    ',"model":"',
    '"file_id":"',
    "tool_use",
]
RAW = [
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\udc00",
    b"\t",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b'"',
    b"\x00",
    b"\\x",
    b"\\u00",
]
SPACES = ["", "", "", " ", "\n", "\t " * 9, " " * 300]
SCALARS = ["1", "-0.5e3", "null", "true", "9" * 30]


@contextmanager
def outlined(window: int, piece: int) -> Iterator[None]:
    """Outline every document in windows and pieces of these sizes, and take out
    every string of more than 128 bytes.
    """
    short = rb'"(?:[^"\\]{1,64}+(?:\\.)?+|\\.){0,%d}+"' % (MAX_SHORT // 64)
    with pytest.MonkeyPatch.context() as patch:
        for module in (json_outline, json_splice):
            patch.setattr(module, "MAX_WHOLE_BYTES", 0)
        patch.setattr(json_outline, "_MAX_SHORT", MAX_SHORT)
        patch.setattr(json_outline, "_BETWEEN", re.compile(rb'(?:[^"]++|%b)*+' % short, re.DOTALL))
        patch.setattr(json_outline, "_WINDOW", window)
        patch.setattr(json_pieces, "PIECE_BYTES", piece)
        patch.setattr(json_outline, "PIECE_BYTES", piece)
        yield


def text(chance: random.Random, words: list[str]) -> str:
    """Return a word, and often more text before or behind it, of a length about the limit."""
    word = chance.choice(words)
    length = chance.choice(
        [0, 0, 0, 1, 30, MAX_SHORT - len(word) - 2, MAX_SHORT - len(word), MAX_SHORT + 1, 400]
    )
    pool = chance.sample(PADDINGS, chance.choice([1, 1, 2, 5]))
    padding = "".join(chance.choice(pool) for _ in range(max(length, 0)))[: max(length, 0)]
    return word + padding if chance.random() < 0.6 else padding + word


def written(chance: random.Random, value: str) -> str:
    """Return a text as JSON, with none, some or all letters in escapes."""
    rate = chance.choice([0, 0, 0, 0.05, 1])
    is_ascii = chance.random() < 0.5
    letters = []
    for letter in value:
        if ord(letter) < 0x10000 and chance.random() < rate:
            letters.append(chance.choice([f"\\u{ord(letter):04x}", f"\\u{ord(letter):04X}"]))
        else:
            letters.append(json.dumps(letter, ensure_ascii=is_ascii)[1:-1])
    return '"' + "".join(letters) + '"'


def value_of(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if kind < 0.45 or depth > 3:
        return written(chance, text(chance, VALUES))
    if kind < 0.5:
        return str(chance.choice(SCALARS))
    space = chance.choice(SPACES)
    count = chance.choice([0, 1, 1, 2, 3])
    if kind < 0.7:
        return (
            "["
            + (space + ",").join(space + value_of(chance, depth + 1) for _ in range(count))
            + space
            + "]"
        )
    return object_of(chance, count, depth + 1)


def object_of(chance: random.Random, count: int, depth: int, first: str = "") -> str:
    space = chance.choice(SPACES)
    members = [first] if first else []
    for _ in range(count):
        name = written(
            chance, text(chance, NAMES) if chance.random() < 0.3 else chance.choice(NAMES)
        )
        members.append(space + name + space + ":" + space + value_of(chance, depth))
    return "{" + ",".join(members) + space + "}"


def message_of(chance: random.Random) -> str:
    role = json.dumps(chance.choice(["user", "assistant", "system", "function"]))
    said = f'"role":{role},"content":{value_of(chance, 2)}'
    return object_of(chance, chance.choice([0, 0, 1]), 2, said)


def document_of(chance: random.Random) -> bytes:
    """Return a request, at times one that is damaged somewhere."""
    said = "[" + ",".join(message_of(chance) for _ in range(chance.choice([0, 1, 2]))) + "]"
    first = f'"model":"m","max_tokens":9,{json.dumps(chance.choice(["messages", "input"]))}:{said}'
    whole = object_of(chance, chance.choice([0, 1, 2, 4]), 0, first).encode()
    if chance.random() < 0.15:
        place = chance.randrange(len(whole))
        return whole[:place] + chance.choice(RAW) + whole[place + chance.choice([0, 0, 1, 30]) :]
    return whole


def seen(request: RunnerRequest | None) -> Any:
    if request is None:
        return None
    names = set(request.__struct_fields__) - {"body", "load_evidence", "load_resent", "kept"}
    fields = {name: getattr(request, name) for name in names}
    return fields, seen_kept(request.kept), request.evidence, request.load_resent()


def seen_kept(kept: KeptReferences | None) -> Any:
    if kept is None:
        return None
    # A text that ends with a quoted name may look like the name itself, where it is searched: so
    # ``is_bound`` may differ.
    names = set(kept.__struct_fields__) - {"form", "go_on_from", "is_bound"}
    return {name: getattr(kept, name) for name in names}


def edits(body: bytes) -> Any:
    parsed = json_splice.Object(body)
    changes = {"model": b'"other"', "stream": b"false", "added": b"1", "id": None, "metadata": None}
    arrays = [each for each in json_splice.list_members(body) if body[each.start] == ord("[")]
    spans = [json_splice.element_spans(body, each.start) for each in arrays]
    objects = [each for each in json_splice.list_members(body) if body[each.start] == ord("{")]
    inner = [json_splice.list_members(body, each.start) for each in objects]
    return parsed.edit(changes), json_splice.list_members(body), spans, inner


def with_context(dialect: Any) -> Callable[[bytes], Any]:
    return lambda body: dialect.add_context(dialect.read_request(body), "More.")


def as_tools(body: bytes) -> Any:
    chat.read_request(body)
    return functions.functions_as_tool_messages(json_splice.Object(body).value("messages") or b"[]")


def checked(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return the reading of a document that was decoded before."""

    def run(body: bytes) -> Any:
        json_splice.check_utf8(body)
        decode_request_outline(msgspec.json.Decoder(msgspec.Raw), body)
        return read(body)

    return run


READINGS: dict[str, Callable[[bytes], Any]] = {
    "chat": lambda body: seen(chat.read_request(body)),
    "messages": lambda body: seen(messages.read_request(body)),
    "responses": lambda body: seen(responses.read_request(body)),
    "model": lambda body: seen(model_only.read_model(body)),
    "other path": lambda body: seen(model_only.read_other_path(body, "application/json")),
    "any": checked(lambda body: decode_request_outline(msgspec.json.Decoder(Any), body)),
    "models": checked(model_names.find_named_models),
    "models of a form": model_names.find_models_in_text,
    "ids": checked(lambda body: object_ids.find_named_objects(body, DIALECT_RULES)),
    "ids elsewhere": checked(lambda body: object_ids.find_named_objects(body, OTHER_RULES)),
    "ids of evals": checked(lambda body: object_ids.find_named_objects(body, EVAL_RULES)),
    "cost": checked(lambda body: cost.measure_request(body, "/v1/chat/completions")),
    "edits": checked(edits),
    "chat context": with_context(chat),
    "messages context": with_context(messages),
    "responses context": with_context(responses),
    "functions": as_tools,
}


def outcomes(document: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, read in READINGS.items():
        try:
            found[name] = read(document)
        except REFUSALS:
            found[name] = "refused"
    return found


@pytest.mark.requirement("bodies:outline")
@settings(max_examples=400)
@given(
    seed=st.integers(0, 1 << 32),
    window=st.sampled_from([13, 14, 50, 200]),
    piece=st.sampled_from([1, 7, 150, 1000]),
)
def test_a_hostile_document_is_read_by_its_outline_as_it_is_as_a_whole(
    seed: int, window: int, piece: int
) -> None:
    document = document_of(random.Random(seed))
    whole = outcomes(document)
    with outlined(window, piece):
        by_outline = outcomes(document)
    for name, expected in whole.items():
        assert by_outline[name] == expected, name


def large(members: str) -> bytes:
    """Return a request of more than 1 MiB with these members."""
    return b'{"model":"m","messages":[{"role":"user","content":"%b"}],%b}' % (
        b"x" * (2 << 20),
        members.encode(),
    )


PADDING = "x" * 3000


@pytest.mark.requirement("bodies:outline")
def test_a_google_file_is_named_by_an_address_of_any_length() -> None:
    body = large(f'"contents":[{{"file_uri":"https://example.org/v1beta/files/other?{PADDING}"}}]')
    assert object_ids.find_named_objects(body, OTHER_RULES)[0].id == "files/other"
    upper = b'{"file_uri":"HTTPS://example.org/v1beta/files/other"}'
    assert object_ids.find_named_objects(upper, OTHER_RULES)[0].id == "files/other"


@pytest.mark.requirement("bodies:outline")
@pytest.mark.parametrize("length", [10_000, 5 << 20])
def test_an_address_that_is_too_long_to_be_read_is_a_file_that_nobody_has(length: int) -> None:
    body = large(f'"file_uri":"https://example.org/{"a/" * (length // 2)}files/other"')
    named = object_ids.find_named_objects(body, OTHER_RULES)
    assert [each.id[:20] for each in named if each.kind == "file"] == ["https://example.org/"]


@pytest.mark.requirement("bodies:outline")
def test_a_long_name_stays_what_it_is() -> None:
    body = large(f'"tool_choice":{{"type":"function","{PADDING}":"{PADDING}","{PADDING}":1}}')
    assert chat.read_request(body).tool_choice == {"type": "function", PADDING: 1}
    spelled = "file" + "_" * 3000 + "id"
    escaped = '"n\\u0061me":1,'
    found = object_ids.find_named_objects(large(f'{escaped}"{spelled}":"f"'), DIALECT_RULES)
    assert [(each.member, each.id) for each in found] == [(spelled, "f")]


@pytest.mark.requirement("policy:other-names")
def test_a_long_preset_is_named_by_its_own_text() -> None:
    found = model_names.find_named_models(large(f'"preset":"{PADDING}","fallbacks":"{" " * 3000}"'))
    assert [each.name for each in found] == [f"@preset/{PADDING}"]


NESTED = {
    "deep": '"x":' + "[" * 5000 + '{"models":["b"]}' + "]" * 5000,
    "many": '"models":[' + ",".join(['"b"'] * 100_000) + "]",
    "again at each level": '"x":'
    + '{"fallbacks":{"x":' * 200
    + "["
    + ",".join(["[]"] * 100_000)
    + "]"
    + "}}" * 200,
}


@pytest.mark.requirement("policy:other-names")
@pytest.mark.parametrize("members", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("is_large", [False, True])
def test_a_request_is_refused_that_names_models_too_often_or_too_deep(
    members: str, *, is_large: bool
) -> None:
    body = large(members) if is_large else f'{{"model":"m",{members}}}'.encode()
    with pytest.raises(model_names.AmbiguousMemberError):
        model_names.find_named_models(body)


@pytest.mark.requirement("policy:other-names")
def test_the_place_of_a_model_does_not_grow_with_every_name_around_it() -> None:
    names = "".join(f'{{"{"x" * 1000}":' for _ in range(400))
    members = f'"x":{names}[{",".join(["{}"] * 100_000)},{{"models":["b"]}}]{"}" * 400}'
    found = model_names.find_named_models(large(members))
    assert [each.name for each in found] == ["b"]
    assert len(found[0].member) < 300


@pytest.mark.requirement("policy:other-names")
def test_a_field_of_a_form_is_read_as_a_lenient_server_reads_it() -> None:
    assert model_names.find_models_in_text(b'{"models":["b"],"x":"\xff"}')[0].name == "b"
    with pytest.raises(TooManyValuesError):
        model_names.find_models_in_text(b"[" + b"{}," * 600_000 + b"{}]")


TOKEN = "a-token-of-an-agent-0123456789"


@pytest.mark.requirement("redactor:cost")
@pytest.mark.parametrize("before", [b"", b" ", b"\r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf "])
def test_a_space_before_a_document_lifts_no_limit(before: bytes) -> None:
    document = before + b'{"a":"%b%b"}' % (TOKEN.encode(), b"x" * (5 << 20))
    with pytest.raises(LongTextError):
        Redactor([Secret(TOKEN)]).document(document, 1 << 20)
