"""The model policy as a table: the model that the agent asked for, and the
candidates that the policy makes of it.
"""

from __future__ import annotations

import math

import pytest

from claw_contract.metadata import ModelPolicy
from claw_contract.providers import ApiFormat, ProviderAuth
from claw_contract.secret import Secret
from claw_mediate.core.model_policy import (
    ModelChoice,
    PoolKey,
    Provider,
    ProviderScope,
    choose_models,
)


def provider(
    name: str,
    api_format: ApiFormat = "openai",
    keys: int = 1,
    auth: ProviderAuth = "bearer",
    until: float = 0.0,
) -> Provider:
    pool = tuple(
        PoolKey(f"k{number}", Secret(f"sk-{name}-{number}"), until) for number in range(keys)
    )
    return Provider(name, f"http://{name}", auth, api_format, pool)


HERE = {
    each.name: each
    for each in (
        provider("openai"),
        provider("xai"),
        provider("anthropic", "anthropic"),
        provider("keyless", keys=0),
        provider("ollama", keys=0, auth="none"),
        provider("laid-off", until=math.inf),
    )
}
BRIDGED = HERE | {"openrouter": provider("openrouter")}
CHAIN = {"primary": "openai/gpt-big", "fallback": "xai/grok", "cheap": "openai/gpt-small"}


def chosen(
    allowed: dict[str, str] | list[tuple[str, str]],
    requested: str,
    api_format: ApiFormat = "openai",
    only: str | None = None,
    providers: dict[str, Provider] = HERE,
) -> ModelChoice:
    entries = allowed.items() if isinstance(allowed, dict) else allowed
    policy = ModelPolicy.model_validate(
        {"allowed": tuple({"slot": slot, "ref": ref} for slot, ref in entries)}
    )
    return choose_models(
        policy, requested, ProviderScope(providers, api_format, providers[only] if only else None)
    )


def drawn(choice: ModelChoice) -> str:
    return ", ".join("/".join(candidate.id) for candidate in choice.candidates)


@pytest.mark.requirement("policy:clamp")
@pytest.mark.parametrize(
    ("requested", "intervention", "candidates"),
    [
        ("openai/gpt-big", None, "openai/gpt-big, xai/grok"),
        ("xai/grok", None, "xai/grok, openai/gpt-big"),
        ("openai/gpt-small", None, "openai/gpt-small, openai/gpt-big, xai/grok"),
        ("grok", "bare_model_normalized", "xai/grok, openai/gpt-big"),
        (" xai/grok\n", None, "xai/grok, openai/gpt-big"),
        ("", "missing", "openai/gpt-big, xai/grok"),
        ("  ", "missing", "openai/gpt-big, xai/grok"),
        ("gpt-huge", "disallowed_clamped", "openai/gpt-big, xai/grok"),
        ("xai/gpt-big", "disallowed_clamped", "openai/gpt-big, xai/grok"),
        ("OPENAI/gpt-big", "disallowed_clamped", "openai/gpt-big, xai/grok"),
        ("/", "disallowed_clamped", "openai/gpt-big, xai/grok"),
        ("openai/", "disallowed_clamped", "openai/gpt-big, xai/grok"),
    ],
)
def test_what_is_asked_for_is_clamped_to_what_is_allowed(
    requested: str, intervention: str | None, candidates: str
) -> None:
    choice = chosen(CHAIN, requested)
    assert (choice.intervention, drawn(choice)) == (intervention, candidates)


@pytest.mark.requirement("policy:clamp")
def test_a_model_name_of_several_providers_is_clamped_and_an_unambiguous_one_is_not() -> None:
    allowed = {
        "primary": "openai/big",
        "a": "openai/twin",
        "b": "xai/twin",
        "c": "anthropic/lone",
        "d": "xai/lone",
    }
    assert [
        (choice.intervention, drawn(choice))
        for name in ("twin", "lone")
        for choice in [chosen(allowed, name)]
    ] == [
        ("ambiguous_clamped", "openai/big"),
        ("bare_model_normalized", "xai/lone, openai/big"),
    ]


@pytest.mark.requirement("policy:clamp")
@pytest.mark.parametrize("requested", ["vendor/model", "model"])
def test_a_model_is_known_by_its_name_at_the_provider_and_by_its_last_segment(
    requested: str,
) -> None:
    allowed = {"primary": "openai/gpt", "other": "openrouter/vendor/model"}
    choice = chosen(allowed, requested, providers=BRIDGED)
    assert (choice.intervention, drawn(choice)) == (
        "bare_model_normalized",
        "openrouter/vendor/model, openai/gpt",
    )


@pytest.mark.requirement("policy:candidates")
@pytest.mark.parametrize(
    ("allowed", "candidates"),
    [
        ([("main", "openai/a"), ("fallback", "xai/b")], "openai/a, xai/b"),
        ([("fallback", "xai/b"), ("primary", "openai/a")], "openai/a, xai/b"),
        (
            [("primary", "openai/a"), ("fallback", "xai/b"), ("fallback", "openai/c")],
            "openai/a, xai/b, openai/c",
        ),
        (
            [("primary", "openai/a"), ("fallback", "xai/b"), ("fallback-2", "openai/c")],
            "openai/a, xai/b, openai/c",
        ),
        ([("primary", "openai/a"), ("fallback", "openai/a"), ("cheap", "openai/a")], "openai/a"),
        ([("cheap", "openai/a"), ("dear", "xai/b")], "openai/a"),
        ([("primary", "openai/a"), ("fallbacks", "xai/b")], "openai/a"),
        ([("primary", "nowhere/a"), ("cheap", "xai/b")], "xai/b"),
        ([("primary", "nowhere/a"), ("cheap", "xai/b"), ("fallback", "openai/c")], "openai/c"),
    ],
)
def test_behind_the_chosen_model_stand_the_primary_and_the_fallbacks_in_order_without_repeats(
    allowed: list[tuple[str, str]], candidates: str
) -> None:
    assert drawn(chosen(allowed, "")) == candidates


@pytest.mark.requirement("policy:bad-ref")
def test_a_useless_ref_is_left_out_with_its_reason_and_the_others_work() -> None:
    bad = ["nowhere/x", "keyless/x", "laid-off/x", "no-slash", "/x", "openai/"]
    allowed = [
        ("primary", "nowhere/main"),
        *(("fallback", ref) for ref in bad),
        ("fallback", "ollama/qwen"),
    ]
    choice = chosen(allowed, "")
    assert (drawn(choice), choice.intervention) == ("ollama/qwen", "missing")
    assert choice.unusable_refs == {
        "nowhere/main": "no provider 'nowhere' is configured",
        "nowhere/x": "no provider 'nowhere' is configured",
        "keyless/x": "the provider 'keyless' has no key",
        "laid-off/x": "the provider 'laid-off' has no key",
        "no-slash": "it is not provider/model",
        "/x": "it is not provider/model",
        "openai/": "it is not provider/model",
    }


@pytest.mark.requirement("policy:bad-ref")
def test_an_allowed_model_that_cannot_be_asked_is_clamped_by_a_name_of_its_own() -> None:
    choice = chosen({"primary": "openai/a", "x": "keyless/b"}, "keyless/b")
    assert (choice.intervention, drawn(choice)) == ("unreachable_clamped", "openai/a")


@pytest.mark.requirement("policy:protocol")
@pytest.mark.parametrize(
    ("api_format", "requested", "intervention", "candidates"),
    [
        ("openai", "", "missing", "openai/gpt"),
        ("anthropic", "", "missing", "anthropic/claude"),
        ("anthropic", "claude", "bare_model_normalized", "anthropic/claude"),
        ("anthropic", "openai/gpt", "unreachable_clamped", "anthropic/claude"),
        ("openai", "anthropic/claude", "unreachable_clamped", "openai/gpt"),
    ],
)
def test_only_providers_that_speak_the_requests_protocol_are_asked(
    api_format: ApiFormat, requested: str, intervention: str, candidates: str
) -> None:
    choice = chosen(
        {"primary": "anthropic/claude", "fallback": "openai/gpt"}, requested, api_format
    )
    assert (choice.intervention, drawn(choice), choice.unusable_refs) == (
        intervention,
        candidates,
        {},
    )


@pytest.mark.requirement("policy:protocol")
def test_openrouter_serves_in_openais_protocol_what_speaks_another_under_its_whole_name() -> None:
    allowed = {"primary": "anthropic/claude", "fallback": "openai/gpt"}
    assert (
        drawn(chosen(allowed, "claude", providers=BRIDGED))
        == "openrouter/anthropic/claude, openai/gpt"
    )
    assert drawn(chosen(allowed, "claude", "anthropic", providers=BRIDGED)) == "anthropic/claude"
    led = chosen(allowed, "openrouter/anthropic/claude", providers=BRIDGED)
    assert (led.intervention, drawn(led)) == (
        "provider_normalized",
        "openrouter/anthropic/claude, openai/gpt",
    )
    twice = chosen(
        {"primary": "anthropic/claude", "fallback": "openrouter/anthropic/claude"},
        "",
        providers=BRIDGED,
    )
    assert drawn(twice) == "openrouter/anthropic/claude"


@pytest.mark.requirement("policy:destination")
@pytest.mark.parametrize(
    ("requested", "intervention", "candidates"),
    [
        ("gpt-big", None, "openai/gpt-big"),
        ("gpt-small", None, "openai/gpt-small, openai/gpt-big"),
        ("openai/gpt-small", "provider_normalized", "openai/gpt-small, openai/gpt-big"),
        ("xai/grok", "unreachable_clamped", "openai/gpt-big"),
        ("gpt-huge", "disallowed_clamped", "openai/gpt-big"),
        ("", "missing", "openai/gpt-big"),
    ],
)
def test_with_a_destination_only_models_of_its_provider_count_by_their_names_there(
    requested: str, intervention: str | None, candidates: str
) -> None:
    choice = chosen(CHAIN, requested, only="openai")
    assert (choice.intervention, drawn(choice)) == (intervention, candidates)


@pytest.mark.requirement("policy:destination")
def test_the_destination_counts_and_not_the_protocol_and_nothing_leads_elsewhere() -> None:
    allowed = {"primary": "openai/gpt", "fallback": "anthropic/claude"}
    assert drawn(chosen(allowed, "claude", "openai", "anthropic", BRIDGED)) == "anthropic/claude"
    assert chosen(allowed, "grok", "openai", "xai", BRIDGED) == ModelChoice((), None, {})
