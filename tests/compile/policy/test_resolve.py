"""The pod's defaults and an agent's own values: absent, null and empty differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compile.resolving import agent, resolved

MODELS = ", models-defaults: {primary: gpt/4, small: haiku, fallback: [a/b, c/d]}"
BUDGET = ", budget-defaults: {limit-usd: 5, max-requests: 200, window: 24h, behavior: soft_alert}"
MEMORY = ", memory-defaults: {service: press, timeout-ms: 900}"
BLOCKS = ", context: {blocks: [{id: rules, text: Be brief.}]}"


@pytest.mark.requirement("compile:models")
@pytest.mark.parametrize(
    ("claw", "expected"),
    [
        ("", "primary=gpt/4 fallback=a/b fallback=c/d small=anthropic/haiku"),
        (", models: {}", ""),
        (", models: null", ""),
        (", models: {primary: x/y}", "primary=x/y fallback=a/b fallback=c/d small=anthropic/haiku"),
        (", models: {fallback: z}", "primary=gpt/4 fallback=anthropic/z small=anthropic/haiku"),
        (", models: {fallback: []}", "primary=gpt/4 small=anthropic/haiku"),
        (
            ", models: {small: null, big: x/y/z}",
            "primary=gpt/4 fallback=a/b fallback=c/d big=x/y/z",
        ),
    ],
)
def test_models_are_the_pods_slot_by_slot_and_fallbacks_are_replaced_as_one(
    tmp_path: Path, claw: str, expected: str
) -> None:
    models = agent(tmp_path, claw, MODELS).models
    assert " ".join(f"{model.slot}={model.ref}" for model in models) == expected


@pytest.mark.requirement("compile:spending")
def test_a_budget_is_replaced_whole_and_null_suppresses_it(tmp_path: Path) -> None:
    inherited = agent(tmp_path, "", BUDGET).budget
    own = agent(tmp_path, ", budget: {max-requests: 3, window: 1h30m}", BUDGET).budget
    assert inherited is not None
    assert own is not None
    assert inherited.model_dump() == {
        "limit_usd": 5.0,
        "max_requests": 200,
        "window": "24h",
        "behavior": "soft_alert",
    }
    assert own.model_dump() == {
        "limit_usd": None,
        "max_requests": 3,
        "window": "1h30m",
        "behavior": "hard_stop",
    }
    assert agent(tmp_path, ", budget: null", BUDGET).budget is None


@pytest.mark.requirement("compile:memory")
def test_a_memory_is_replaced_whole_and_null_suppresses_it(tmp_path: Path) -> None:
    inherited = agent(tmp_path, "", MEMORY).memory
    own = agent(tmp_path, ", memory: {service: press}", MEMORY).memory
    assert inherited is not None
    assert own is not None
    # The time-out of the pod's memory does not apply to an agent's own memory.
    assert (inherited.timeout_ms, own.timeout_ms) == (900, 300)
    assert inherited.paths.recall is not None
    assert inherited.paths.recall.path == "/recall"
    assert agent(tmp_path, ", memory: null", MEMORY).memory is None


@pytest.mark.requirement("compile:context-blocks")
def test_context_blocks_are_replaced_as_a_list_and_an_empty_one_suppresses(tmp_path: Path) -> None:
    (inherited,) = agent(tmp_path, "", BLOCKS).blocks
    assert (inherited.id, inherited.kind, inherited.max_chars) == ("rules", "context_block", 800)
    assert (inherited.placement, inherited.cadence, inherited.enabled) == (
        "after_feeds",
        "every_turn",
        None,
    )
    own = agent(
        tmp_path,
        ", context: {blocks: [{id: mine, text: 'a $$5 fee', placement: before_feeds}]}",
        BLOCKS,
    )
    assert [(block.id, block.text, block.placement) for block in own.blocks] == [
        ("mine", "a $5 fee", "before_feeds")
    ]
    assert agent(tmp_path, ", context: {blocks: []}", BLOCKS).blocks == ()
    assert agent(tmp_path, ", context: null", BLOCKS).blocks == ()
    assert len(agent(tmp_path, ", context: {channel: {since: 1h}}", BLOCKS).blocks) == 1


@pytest.mark.requirement("compile:feeds")
@pytest.mark.parametrize(
    ("claw", "expected"),
    [
        ("", ["market/prices"]),
        (", feeds: []", []),
        (", feeds: null", []),
        (", feeds: ['news-{claw_id}', ...]", ["press/news-one", "market/prices"]),
        (", feeds: [..., press/prices]", ["market/prices", "press/prices"]),
        (", feeds: [..., ...]", None),
    ],
)
def test_feeds_are_a_list_with_one_spread_and_keep_their_order(
    tmp_path: Path, claw: str, expected: list[str] | None
) -> None:
    value, diagnostics = resolved(
        tmp_path,
        ", feeds-defaults: [market/prices]",
        f"  one: {{x-claw: {{agent: AGENTS.md{claw}}}}}",
    )
    codes = [each.code.name for each in diagnostics if each.is_error]
    if expected is None:
        assert codes == ["spread-twice"]
    else:
        assert codes == []
        assert [f"{feed.service}/{feed.name}" for feed in value.agents[0].feeds] == expected


@pytest.mark.requirement("compile:feeds")
def test_an_ambiguous_feed_is_told_with_its_candidates(tmp_path: Path) -> None:
    _, diagnostics = resolved(tmp_path, "", "  one: {x-claw: {agent: AGENTS.md, feeds: [prices]}}")
    (error,) = [each for each in diagnostics if each.is_error]
    assert error.code.name == "ambiguous-feed"
    assert error.help == "write one of 'market/prices', 'press/prices'"


@pytest.mark.requirement("compile:feeds")
def test_a_feed_of_ones_own_needs_no_descriptor_and_is_filled_in_for_its_agent(
    tmp_path: Path,
) -> None:
    claw = (
        ", feeds: [{name: 'mine-{claw_id}', source: plain, path: '/f/{claw_id}?n=3', ttl: 5, "
        "description: Mine}]"
    )
    (feed,) = agent(tmp_path, claw).feeds
    assert (feed.name, feed.service, feed.path, feed.ttl) == ("mine-one", "plain", "/f/one?n=3", 5)


@pytest.mark.requirement("compile:skills")
def test_skills_are_a_list_with_one_spread(tmp_path: Path) -> None:
    defaults = ", skills-defaults: [one.md]"
    assert [skill.name for skill in agent(tmp_path, "", defaults).skills] == ["one.md"]
    assert [
        skill.name for skill in agent(tmp_path, ", skills: [two.md, ...]", defaults).skills
    ] == ["two.md", "one.md"]
    assert agent(tmp_path, ", skills: []", defaults).skills == ()


@pytest.mark.requirement("compile:surfaces")
def test_surfaces_are_a_list_with_one_spread_and_are_read_only_unless_they_say_so(
    tmp_path: Path,
) -> None:
    defaults = ", surfaces-defaults: [volume://notes]"
    own = (
        ", surfaces: [..., 'volume://notes rw', 'host:///a:b read-only', service://plain, "
        "channel://discord, egress://]"
    )
    surfaces = agent(tmp_path, own, defaults).surfaces
    assert [(surface.scheme, surface.target, surface.mode) for surface in surfaces] == [
        ("volume", "notes", "ro"),
        ("volume", "notes", "rw"),
        ("host", "/a:b", "ro"),
        ("service", "plain", None),
        ("channel", "discord", None),
        ("egress", "", None),
    ]
    assert [surface.target for surface in agent(tmp_path, "", defaults).surfaces] == ["notes"]
    assert agent(tmp_path, ", surfaces: null", defaults).surfaces == ()


@pytest.mark.requirement("compile:proxy")
def test_the_environment_of_the_proxy_is_the_pods_and_every_agents(tmp_path: Path) -> None:
    services = (
        "  one: {x-claw: {agent: AGENTS.md, cllama-env: {KEY: $KEY, LEVEL: 3}}}\n"
        "  two: {x-claw: {agent: AGENTS.md, cllama-env: {LEVEL: '3', TAKEN: null}}}\n"
        "  off: {x-claw: {agent: AGENTS.md, cllama: null, cllama-env: {KEY: another}}}\n"
    )
    file_pod = ", secrets: {}"
    value, diagnostics = resolved(
        tmp_path, file_pod, services, KEY="planted-key", TAKEN="of-the-process"
    )
    assert diagnostics == []
    env = {name: setting.value for name, setting in value.proxy_env.items()}
    assert env == {"KEY": "planted-key", "LEVEL": "3", "TAKEN": "of-the-process"}
    assert "planted-key" not in repr(value.proxy_env)


@pytest.mark.requirement("compile:count")
def test_a_counted_agent_is_several_that_differ_in_nothing_but_their_ids(tmp_path: Path) -> None:
    services = (
        "  bot: {x-claw: {agent: AGENTS.md, count: '${N:-3}', feeds: ['news-{claw_id}'], "
        "models: {primary: openai/b}}}"
    )
    value, diagnostics = resolved(tmp_path, "", services)
    assert diagnostics == []
    assert [(each.id, each.ordinal) for each in value.agents] == [
        ("bot-0", 0),
        ("bot-1", 1),
        ("bot-2", 2),
    ]
    assert [each.feeds[0].path for each in value.agents] == [
        "/news/bot-0",
        "/news/bot-1",
        "/news/bot-2",
    ]
    assert len({each.models for each in value.agents}) == 1
    alone, _ = resolved(tmp_path, "", services, N="1")
    assert [(each.id, each.ordinal) for each in alone.agents] == [("bot", None)]


@pytest.mark.requirement("compile:timezone")
@pytest.mark.parametrize(
    ("environment", "zone"),
    [("{TZ: Europe/Berlin}", "Europe/Berlin"), ("[TZ=x y]", "UTC"), ("{}", "UTC")],
)
def test_the_time_zone_is_that_of_the_container(
    tmp_path: Path, environment: str, zone: str
) -> None:
    value, _ = resolved(
        tmp_path, "", f"  one: {{environment: {environment}, x-claw: {{agent: AGENTS.md}}}}"
    )
    assert value.agents[0].timezone == zone
