"""Parts of a prompt as the grammar reads them: feeds, memory and context blocks."""

from __future__ import annotations

import pytest

from claw_compile.grammar.pod import MEMORY_TIMEOUT_MS, OwnFeed
from tests.compile.grammar.reading import agent_of


@pytest.mark.requirement("compile:feeds")
def test_a_feed_is_a_name_or_a_mapping_with_its_source_and_path() -> None:
    own = "{name: mine, source: api, path: '/f?n=3', ttl: 5}"
    spec, codes = agent_of(f", feeds: [news, ..., {own}]")
    assert codes == []
    assert spec.feeds is not None
    assert spec.feeds.spread is not None
    name, _, feed = spec.feeds.entries
    assert name.text == "news"  # type: ignore[union-attr]
    assert isinstance(feed, OwnFeed)
    assert (feed.source.text, feed.path.text, feed.ttl) == ("api", "/f?n=3", 5)


@pytest.mark.requirement("compile:feeds")
@pytest.mark.parametrize(
    ("feed", "codes"),
    [
        ("{name: a, source: b}", ["missing-key"]),
        ("{name: a, source: b, path: f}", ["bad-path"]),
        ("{name: a, source: b, path: /a/../f}", ["bad-path"]),
        ("{name: a, source: b, path: /f, ttl: 0}", ["bad-limit"]),
        ("[a]", ["wrong-type"]),
    ],
)
def test_a_feed_that_can_not_be_read_is_left_out_and_told(feed: str, codes: list[str]) -> None:
    spec, found = agent_of(f", feeds: [{feed}]")
    assert found == codes
    assert spec.feeds is not None
    if codes != ["bad-limit"]:
        assert spec.feeds.entries == ()


@pytest.mark.requirement("compile:memory")
def test_a_memory_without_a_time_has_the_contracts_and_null_has_no_service() -> None:
    spec, codes = agent_of(", memory: {service: notes}")
    assert codes == []
    assert spec.memory is not None
    assert spec.memory.service is not None
    assert (spec.memory.service.text, spec.memory.timeout_ms) == ("notes", MEMORY_TIMEOUT_MS)
    suppressed, codes = agent_of(", memory: null")
    assert codes == []
    assert suppressed.memory is not None
    assert suppressed.memory.service is None


@pytest.mark.requirement("compile:context-blocks")
@pytest.mark.parametrize(
    ("context", "ids", "codes"),
    [
        ("{blocks: [{id: a, text: b}, {id: c, text: d}]}", ["a", "c"], []),
        ("{blocks: []}", [], []),
        ("null", [], []),
        ("{}", None, []),
        ("{blocks: [{id: a, text: b}, {id: a, text: c}]}", ["a"], ["bad-block"]),
        ("{blocks: [{id: a, text: ' '}]}", [], ["bad-block"]),
        ("{blocks: [{id: a, text: abcdef, max-chars: 3}]}", ["a"], ["block-is-cut"]),
        ("{blocks: [{id: a, text: b, cadence: once}]}", ["a"], ["bad-value"]),
    ],
)
def test_blocks_have_their_own_ids_and_a_context_without_blocks_inherits(
    context: str, ids: list[str] | None, codes: list[str]
) -> None:
    spec, found = agent_of(f", context: {context}")
    assert found == codes
    read = None if spec.context is None else [block.id for block in spec.context.blocks]
    assert read == ids
