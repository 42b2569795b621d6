"""Providers from file and environment, their keys, and where a request goes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from claw_mediate.providers import registry as registry_module
from claw_mediate.providers.key_states import KeyStates
from claw_mediate.telemetry.event_log import EventLog
from tests.mediate.failing_reads import fail_reads
from tests.mediate.providers.auth import Auth, key, keys, ready


@pytest.fixture
def auth(tmp_path: Path) -> Auth:
    return Auth(tmp_path)


@pytest.mark.requirement("providers:versions")
@pytest.mark.parametrize("version", [{}, {"version": 1}])
def test_version_one_has_one_key_and_may_not_say_its_version(
    auth: Auth, version: dict[str, int]
) -> None:
    auth.write(
        {**version, "providers": {"openai": {"base_url": "http://mock:1/v1/", "api_key": "sk-1"}}}
    )
    openai = auth.registry().all()["openai"]
    assert (openai.base_url, openai.auth, openai.api_format, keys(openai)) == (
        "http://mock:1/v1",
        "bearer",
        "openai",
        ["sk-1"],
    )


@pytest.mark.requirement("providers:versions")
def test_version_two_has_a_pool_with_its_active_key_first_and_no_dead_one(
    auth: Auth,
) -> None:
    states = {"a": "ready", "b": "dead", "c": "cooldown", "d": "disabled", "e": "ready"}
    pool = [{"id": name, "secret": f"sk-{name}", "state": state} for name, state in states.items()]
    auth.write({"version": 2, "providers": {"anthropic": {"keys": pool, "active_key_id": "e"}}})
    registry = auth.registry()
    anthropic = registry.all()["anthropic"]
    assert ready(registry, "anthropic") == ["sk-e", "sk-a", "sk-c"]
    assert (anthropic.auth, anthropic.base_url) == ("x-api-key", "https://api.anthropic.com/v1")


@pytest.mark.requirement("providers:environment")
def test_keys_of_the_environment_are_numbered_and_each_counts_once(auth: Auth) -> None:
    env = {
        "OPENAI_API_KEY_10": "sk-10",
        "OPENAI_API_KEY_2": " sk-2 ",
        "OPENAI_API_KEY": "sk-0",
        "OPENAI_API_KEY_3": "sk-0",
    }
    env |= {
        "OPENAI_API_KEY_X": "no",
        "OPENAI_API_KEY_4": " ",
        "GOOGLE_API_KEY": "g2",
        "GEMINI_API_KEY": "g1",
    }
    providers = auth.registry(env).all()
    assert keys(providers["openai"]) == ["sk-0", "sk-2", "sk-10"]
    assert [key.id for key in providers["openai"].keys] == [
        f"env:OPENAI_API_KEY{n}" for n in ("", "_2", "_10")
    ]
    assert keys(providers["google"]) == ["g1", "g2"]
    assert not providers["xai"].is_usable


@pytest.mark.requirement("providers:environment")
def test_keys_of_the_file_win_and_base_urls_of_the_environment_do(auth: Auth) -> None:
    auth.write(
        {
            "providers": {
                "openai": {"api_key": "file", "base_url": "http://file/v1"},
                "my-llm": {"base_url": "http://f"},
            }
        }
    )
    env = {
        "OPENAI_API_KEY": "env",
        "OPENAI_BASE_URL": "http://env/v1/",
        "MY_LLM_BASE_URL": "http://env",
        "XAI_API_KEY": "x",
    }
    providers = auth.registry(env).all()
    assert keys(providers["openai"]) == ["file"]
    assert [providers[name].base_url for name in ("openai", "my-llm", "xai")] == [
        "http://env/v1",
        "http://env",
        "https://api.x.ai/v1",
    ]


def test_a_provider_without_keys_works_when_it_takes_none(auth: Auth) -> None:
    auth.write(
        {
            "providers": {
                "ollama": {"base_url": "http://ollama:11434/v1", "auth": "none"},
                "nowhere": {"auth": "none"},
            }
        }
    )
    providers = auth.registry().all()
    assert providers["ollama"].is_usable
    assert "nowhere" not in providers


@pytest.mark.requirement("keys:keyless")
def test_ollama_is_known_where_its_address_is(auth: Auth) -> None:
    assert "ollama" not in auth.registry({"OPENAI_API_KEY": "o"}).all()
    registry = auth.registry({"OLLAMA_BASE_URL": "http://ollama:11434/"})
    ollama = registry.all()["ollama"]
    assert (ollama.auth, ollama.base_url, ollama.is_usable, registry.ready(ollama, "qwen")) == (
        "none",
        "http://ollama:11434",
        True,
        [None],
    )
    assert registry.by_model("ollama/qwen", "openai").id == ("ollama", "qwen")
    assert ollama.strip_base_path("/v1/chat/completions") == "/v1/chat/completions"
    assert "ollama" in registry.hosts()


BROKEN = [
    "",
    "{",
    "[]",
    '{"version":3}',
    '{"providers":{"a":{"auth":"digest"}}}',
    '{"providers":{"a":{"base_url":"ftp://x"}}}',
]


@pytest.mark.requirement("providers:broken-file")
@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_keeps_the_last_good_state_with_one_event(auth: Auth, text: str) -> None:
    auth.write({"providers": {"openai": {"api_key": "sk-good"}}})
    registry = auth.registry()
    assert keys(registry.all()["openai"]) == ["sk-good"]
    auth.write(text)
    for _ in range(3):
        assert keys(registry.all()["openai"]) == ["sk-good"]
    assert [(event["type"], event["error"]) for event in auth.events] == [
        ("error", "providers_broken")
    ]
    auth.write({"providers": {"openai": {"api_key": "sk-new"}}})
    assert keys(registry.all()["openai"]) == ["sk-new"]


@pytest.mark.requirement("agents:reload-after-error")
@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_a_key_that_was_removed_during_an_error_is_gone_when_that_is_over(
    auth: Auth, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    auth.write({"providers": {"openai": {"api_key": "sk-old"}}})
    registry = auth.registry()
    assert ready(registry) == ["sk-old"]
    for before, secret in (("sk-old", "sk-new"), ("sk-new", "sk-newer")):
        auth.events.clear()
        auth.write({"providers": {"openai": {"api_key": secret}}})
        fail_reads(monkeypatch, registry_module, code)
        for _ in range(3):
            assert ready(registry) == [before]
        assert [event["error"] for event in auth.events] == ["providers_broken"]
        assert registry.problem is not None
        monkeypatch.undo()
        assert ready(registry) == [secret]
        assert registry.problem is None


@pytest.mark.requirement("agents:reload-after-error")
def test_keys_of_the_environment_are_there_after_an_error_at_the_start(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth.write({"providers": {}})
    registry = auth.registry({"OPENAI_API_KEY": "sk-env"})
    fail_reads(monkeypatch, registry_module)
    assert [ready(registry) for _ in range(2)] == [[], []]
    monkeypatch.undo()
    assert ready(registry) == ["sk-env"]


@pytest.mark.requirement("agents:reload")
def test_a_look_at_the_providers_and_their_keys_holds_for_its_time(auth: Auth) -> None:
    first, second = ({"providers": {"openai": {"api_key": secret}}} for secret in ("sk-1", "sk-2"))
    auth.write(first)
    patient, other = auth.registry(look_seconds=3600), auth.registry()
    assert ready(patient) == ["sk-1"]
    _, dead = key(other, "sk-1")
    KeyStates(auth.directory / "key-states", EventLog(), lambda: auth.clock).kill(
        "openai", dead, 401
    )
    assert ready(other) == []
    assert ready(patient) == ["sk-1"]
    auth.write(second)
    assert (ready(patient), ready(other)) == (["sk-1"], ["sk-2"])
    patient.clear_cache()
    assert ready(patient) == ["sk-2"]


@pytest.mark.requirement("providers:broken-file")
def test_a_file_that_is_broken_from_the_start_leaves_no_key_at_all(auth: Auth) -> None:
    auth.write("{")
    registry = auth.registry({"OPENAI_API_KEY": "sk-env"})
    assert not any(provider.is_usable for provider in registry.all().values())
    assert "api.openai.com" in registry.hosts()


def test_without_a_file_the_environment_is_all(auth: Auth) -> None:
    registry = auth.registry({"OPENAI_API_KEY": "sk-env"})
    assert keys(registry.all()["openai"]) == ["sk-env"]
    auth.write({"providers": {"openai": {"api_key": "sk-file"}}})
    assert keys(registry.all()["openai"]) == ["sk-file"]
    (auth.directory / "providers.json").unlink()
    assert keys(registry.all()["openai"]) == ["sk-env"]


@pytest.mark.requirement("providers:routing")
@pytest.mark.parametrize(
    ("model", "api_format", "provider", "name"),
    [
        ("anthropic/claude-x", "openai", "anthropic", "claude-x"),
        ("openrouter/openai/gpt-x", "openai", "openrouter", "openai/gpt-x"),
        ("gpt-x", "openai", "openai", "gpt-x"),
        ("claude-x", "anthropic", "anthropic", "claude-x"),
        ("meta/llama", "openai", "openai", "meta/llama"),
        ("", "openai", "openai", ""),
        ("/x", "openai", "openai", "/x"),
    ],
)
def test_the_models_prefix_picks_the_provider_else_the_dialects_default_does(
    auth: Auth, model: str, api_format: Any, provider: str, name: str
) -> None:
    found = auth.registry({"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}).by_model(
        model, api_format
    )
    assert found.id == (provider, name)


@pytest.mark.requirement("providers:routing")
def test_when_the_default_has_no_key_another_of_its_format_serves(auth: Auth) -> None:
    auth.write({"providers": {"ollama": {"base_url": "http://ollama/v1", "auth": "none"}}})
    assert auth.registry().by_model("llama", "openai").provider.name == "ollama"
    assert not auth.registry().by_model("claude", "anthropic").provider.is_usable


@pytest.mark.requirement("providers:hosts")
def test_known_hosts_stay_governed_wherever_their_provider_is_now(auth: Auth) -> None:
    auth.write(
        {
            "providers": {
                "openai": {"base_url": "http://mock:1/v1"},
                "mine": {"base_url": "https://LLM.test/v1"},
            }
        }
    )
    registry = auth.registry(hosts={"gateway.test": "openai", "lost.test": "nobody"})
    assert {
        "api.openai.com",
        "api.anthropic.com",
        "mock",
        "llm.test",
        "gateway.test",
        "lost.test",
    } <= registry.hosts()
    found = {
        host: registry.by_host(host)
        for host in ("API.openai.com", "mock", "llm.test", "gateway.test", "lost.test", "x.test")
    }
    assert {host: provider.name if provider else None for host, provider in found.items()} == {
        "API.openai.com": "openai",
        "mock": "openai",
        "llm.test": "mine",
        "gateway.test": "openai",
        "lost.test": None,
        "x.test": None,
    }


def test_the_registrys_text_shows_no_key(auth: Auth) -> None:
    registry = auth.registry({"OPENAI_API_KEY": "sk-sup3r"})
    assert "sk-sup3r" not in repr(registry.all())
    assert [secret.reveal() for secret in registry.secrets()] == ["sk-sup3r"]
