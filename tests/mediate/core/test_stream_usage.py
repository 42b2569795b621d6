"""A chat stream is asked for its usage, and the chunk that only has it is taken out again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw_mediate.core.json_splice import RepeatedMemberError
from claw_mediate.core.stream_usage import UsageChunkFilter, ask_for_usage


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", '"stream_options":{"include_usage":true}'),
        ('"stream_options" : null', '"stream_options" : {"include_usage":true}'),
        ('"stream_options":{ }', '"stream_options":{ "include_usage":true}'),
        (
            '"stream_options":{"include_usage" :false, "x":1.0}',
            '"stream_options":{"include_usage" :true, "x":1.0}',
        ),
        ('"stream_options":{"include_usage":true}', None),
        ('"stream_options":{"include_usage":"yes"}', None),
        ('"stream_options":[7]', None),
    ],
)
def test_only_the_option_is_edited(options: str, sent: str | None) -> None:
    comma = "," if options or sent else ""
    body = f'{{"model": "m" ,"id":12345678901234567890{"," if options else ""}{options}}}'
    expected = (
        None
        if sent is None
        else f'{{"model": "m" ,"id":12345678901234567890{comma}{sent}}}'.encode()
    )
    assert ask_for_usage(body.encode()) == expected


@pytest.mark.requirement("budget:usage-asked-for")
@pytest.mark.parametrize(
    "body",
    [
        b'{"stream_options":{},"stream_options":{}}',
        b'{"stream_options":{"include_usage":0,"include_usage":1}}',
    ],
)
def test_an_option_that_stands_twice_is_refused(body: bytes) -> None:
    with pytest.raises(RepeatedMemberError):
        ask_for_usage(body)


USED = '{"id":"c","choices":[],"usage":{"prompt_tokens":1}}'


KEPT = [
    'data: {"choices":[{"delta":{"content":"\\"usage\\" {}"}}],"usage":null}',
    ': a comment with "usage"',
    'data: {"choices":[],"usage":null}',
    'data: {"choices":[{"index":0}],"usage":{"prompt_tokens":1}}',
    'data: {"usage":{"prompt_tokens":1}}',
    'event: x\nid: 7\ndata: {"choices":7,"usage":{}}',
    'data: {"choices":[],\ndata: "usage"',
    "data: [DONE]",
]


@pytest.mark.requirement("budget:usage-asked-for")
@given(
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sets(st.integers(1, 700)),
    st.integers(0, len(KEPT)),
    st.booleans(),
)
def test_only_the_chunk_with_nothing_but_usage_leaves_a_stream_however_it_is_cut(
    end: str, cuts: set[int], place: int, has_name: bool
) -> None:
    used = f"event: usage\ndata: {USED}" if has_name else f"data:{USED}"

    def written(*events: str) -> bytes:
        return "".join(event.replace("\n", end) + end * 2 for event in events).encode()

    stream = written(*KEPT[:place], used, *KEPT[place:])
    chunks, out = UsageChunkFilter(), b""
    for start, stop in pairwise(
        [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    ):
        out += chunks.feed(stream[start:stop])
    assert out + chunks.end() == written(*KEPT)


@pytest.mark.requirement("budget:usage-asked-for")
def test_a_stream_without_ends_of_events_goes_on_and_takes_no_memory() -> None:
    chunks = UsageChunkFilter()
    sent = sum(len(chunks.feed(b'data: "usage" ' * 5000)) for _ in range(100))
    assert sent + len(chunks.end()) == 100 * 5000 * 14
    assert chunks.feed(f"data: {USED}\n\n".encode()) != b"", "from there on nothing is searched for"
    assert UsageChunkFilter().feed(b"data: 1\n\n") == b"data: 1\n\n", "an event is not held back"
