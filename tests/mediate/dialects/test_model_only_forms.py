"""Forms: those that runners' libraries write are read, and those that parsers read
differently are refused.
"""

from __future__ import annotations

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.dialects.base import UnreadableRequestError
from claw_mediate.dialects.model_only import MAX_FIELDS, read_form_fields
from tests.mediate.forms import CONTENT_TYPE


def values(content_type: str, body: bytes) -> list[tuple[str, bytes, bool]]:
    return [
        (field.name, body[field.start : field.end], field.is_text)
        for field in read_form_fields(content_type, body)
    ]


@pytest.mark.requirement("policy:forms")
@given(
    names=st.lists(st.text("abc_[]", min_size=1, max_size=9), min_size=1, max_size=5, unique=True),
    content=st.binary(max_size=300),
)
def test_forms_that_a_client_library_writes_are_read(names: list[str], content: bytes) -> None:
    sent = httpx2.Request(
        "POST", "http://x", data=dict.fromkeys(names, "v"), files={"file": ('ä ".wav', content)}
    )
    body = sent.read()
    read = values(sent.headers["content-type"], body)
    assert read == [*((name, b"v", True) for name in names), ("file", content, False)]


@pytest.mark.requirement("policy:forms")
def test_forms_of_other_clients_are_read() -> None:
    heads = [
        b"content-disposition: form-data;name=model",
        b'Content-Disposition: form-data; name="model"\r\nContent-Type: text/plain; charset=utf-8',
        b'Content-Length: 1\r\nContent-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: 8bit',
    ]
    for head in heads:
        assert values(CONTENT_TYPE, b"--edge\r\n" + head + b"\r\n\r\nx\r\n--edge--") == [
            ("model", b"x", True)
        ]
    assert read_form_fields('multipart/form-data; boundary="ed ge"', b"--ed ge--") == []


PART = b'--edge\r\nContent-Disposition: form-data; name="model"\r\n\r\nx\r\n'
ODD = {
    "nothing": b"",
    "no end": PART,
    "text behind the end": PART + b"--edge--\r\nx",
    "a preamble": b"x\r\n" + PART + b"--edge--",
    "bare line feeds": (PART + b"--edge--").replace(b"\r\n", b"\n"),
    "a mark within a value": PART.replace(b"x", b"a\n--edge\n") + b"--edge--",
    "a mark that begins another word": PART.replace(b"x", b"a\r\n--edger") + b"--edge--",
    "white space behind a mark": PART.replace(b"--edge\r", b"--edge \r") + b"--edge--",
    "no head": b"--edge\r\n\r\nx\r\n--edge--",
    "no end of a head": b'--edge\r\nContent-Disposition: form-data; name="model"\r\n--edge--',
    "an endless head": PART.replace(b"\r\n\r\n", b"\r\nx: " + b"a" * 5000 + b"\r\n\r\n")
    + b"--edge--",
    "a folded line": PART.replace(b"; name", b";\r\n name") + b"--edge--",
    "a line feed in a head": PART.replace(b"; name", b";\nx: 1; name") + b"--edge--",
    "two dispositions": PART.replace(
        b"\r\n\r\n", b'\r\ncontent-disposition: form-data; name="a"\r\n\r\n'
    )
    + b"--edge--",
    "an escaped name": PART.replace(b"model", b'a\\"; name=\\"model') + b"--edge--",
    "two names": PART.replace(b'"model"', b'"a"; name="model"') + b"--edge--",
    "an encoded name": PART.replace(b'name="model"', b"name*=utf-8''model") + b"--edge--",
    "a name that is not UTF-8": PART.replace(b"model", b"\xff") + b"--edge--",
    "an encoded part": PART.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n")
    + b"--edge--",
}


@pytest.mark.requirement("policy:forms")
@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_a_form_that_parsers_read_in_several_ways_is_refused(body: bytes) -> None:
    assert values(CONTENT_TYPE, PART + b"--edge--") == [("model", b"x", True)]
    with pytest.raises(UnreadableRequestError):
        read_form_fields(CONTENT_TYPE, body)


@pytest.mark.requirement("policy:forms")
@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=edge",
        f"{CONTENT_TYPE}; boundary=x",
    ],
)
def test_a_form_whose_content_type_names_no_single_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(UnreadableRequestError):
        read_form_fields(content_type, PART + b"--edge--")


@pytest.mark.requirement("policy:forms")
def test_a_form_of_too_many_fields_is_refused() -> None:
    assert len(read_form_fields(CONTENT_TYPE, PART * MAX_FIELDS + b"--edge--")) == MAX_FIELDS
    with pytest.raises(UnreadableRequestError):
        read_form_fields(CONTENT_TYPE, PART * (MAX_FIELDS + 1) + b"--edge--")


@pytest.mark.requirement("policy:forms")
@pytest.mark.parametrize(
    ("more", "is_text"),
    [
        ("; filename=a", False),
        ("; filename*=utf-8''a", False),
        ("\r\nContent-Type: text/plain; charset=utf-16", False),
    ],
)
def test_a_file_or_text_of_another_charset_is_not_read_as_text(more: str, is_text: bool) -> None:
    body = PART.replace(b'"model"', b'"model"' + more.encode()) + b"--edge--"
    assert [field.is_text for field in read_form_fields(CONTENT_TYPE, body)] == [is_text]
