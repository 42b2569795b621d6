"""The heads of requests and responses that our own client writes and reads by
itself, beside those of h11.
"""

from __future__ import annotations

import h11
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.http.client import parse_url, read_plain_head, write_request
from claw_mediate.http.headers import decode_headers

pytestmark = pytest.mark.requirement("connections:http")
STATUS_LINES = (
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 404 ",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No",
    "HTTP/1.1 100 Go",
    "HTTP/1.1 2x0 OK",
)
FIELDS = (
    "content-length: 3",
    "Content-Length:\t03 ",
    "content-length: 3, 3",
    "content-length: +3",
    "transfer-encoding: chunked",
    "Transfer-Encoding: CHUNKED ",
    "transfer-encoding: gzip, chunked",
    "Connection: Keep-Alive",
    "connection: close",
    "connection: keep-alive, x",
    "transfer-encoding: keep-alive",
    "content-type: application/json",
    "empty:",
    "x y: 1",
    " folded",
    "x : 1",
    "x: \x00",
    "x: \xe9",
    "x",
)


@given(
    st.sampled_from(STATUS_LINES),
    st.sampled_from(["content-length: 3", "transfer-encoding: chunked"]),
    st.lists(st.sampled_from(FIELDS), max_size=4),
    st.sampled_from(["\r\n", "\n"]),
)
def test_a_plain_response_is_what_it_is_to_h11(
    status: str, framing: str, fields: list[str], end: str
) -> None:
    sent = "abc" if framing == "content-length: 3" else "3\r\nabc\r\n0\r\n\r\n"
    said = end.join([status, framing, *fields, "", sent]).encode("latin-1")
    request = h11.Request(method="POST", target="/", headers=[("host", "a")])
    plain = read_plain_head(bytearray(said), request.method)
    if plain is None:
        return
    reader = h11.Connection(h11.CLIENT)
    reader.send(request)
    reader.send(h11.EndOfMessage())
    reader.receive_data(said)
    head, body = reader.next_event(), reader.next_event()
    assert isinstance(head, h11.Response)
    assert isinstance(body, h11.Data)
    headers = decode_headers(head.headers.raw_items())
    length = len(body.data) if sent == "abc" else None
    assert plain == (len(said) - len(sent), head.status_code, headers, length)
    assert isinstance(reader.next_event(), h11.EndOfMessage)
    reader.start_next_cycle()


SENT = (
    b"x",
    b"a b",
    b"a\tb",
    b"",
    b" a",
    b"a ",
    b"\xe9",
    b"3",
    b"chunked",
    b"a\r\nx: y",
    b"\0",
    b"\x7f",
)
NAMES = (
    b"x-a",
    b"X-A",
    b"Host",
    b"content-length",
    b"Transfer-Encoding",
    b"x: a",
    b"x,a",
    b"",
    b"\xe9",
    b"hosts",
)


@given(
    st.sampled_from(["POST", "get", "G T", ""]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(SENT)), max_size=3),
    st.sampled_from(["/b?c=%20", "/b c", "/\x7f", "/b\r\nx: y"]),
    st.sampled_from([b"abc", None]),
)
def test_a_request_is_what_h11_writes(
    method: str, fields: list[tuple[bytes, bytes]], path: str, body: bytes | None
) -> None:
    target = parse_url("http://a.test/v1")
    length = (
        [(b"content-length", b"3")]
        if body
        else [(b"content-length", b"0")]
        if method == "POST"
        else []
    )
    try:
        asked = h11.Request(
            method=method, target=f"/v1{path}", headers=[*fields, (b"host", b"a.test"), *length]
        )
        head = h11.Connection(h11.CLIENT).send(asked)
    except h11.LocalProtocolError:
        with pytest.raises(httpx2.LocalProtocolError):
            write_request(method, target, fields, body, path)
        return
    assert write_request(method, target, fields, body, path).head == head


def test_an_ordinary_response_is_plain_and_a_bodiless_one_is_not() -> None:
    said = bytearray(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    plain = read_plain_head(said, b"POST")
    assert plain == (
        len(said) - 2,
        200,
        [("content-type", "application/json"), ("content-length", "2")],
        2,
    )
    assert read_plain_head(said, b"HEAD") is None
