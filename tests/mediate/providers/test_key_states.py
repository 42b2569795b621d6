"""The states of keys: how answers set them, how long they last, and that they survive a restart."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from claw_contract.providers import KeyRecord
from claw_mediate.providers import key_states
from claw_mediate.providers.key_answers import KeyAnswer
from claw_mediate.providers.registry import ProviderRegistry, parse_retry_after
from tests.mediate.failing_reads import fail_reads
from tests.mediate.providers.auth import Auth, key, ready

TWO = {"OPENAI_API_KEY": "sk-zero", "OPENAI_API_KEY_1": "sk-one"}
BAD = b'{"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}'
QUOTA = b'{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": null}}'
BILLING = b'{"type":"error","error":{"type":"billing_hard_limit_reached"}}'
GEMINI = b'{"error": {"code": 429, "message": "You exceeded your current quota, check your plan and billing details"}}'
DEAD = KeyAnswer(401, BAD)


def throttled(seconds: str, model: str = "gpt") -> KeyAnswer:
    return KeyAnswer(429, b"", seconds, model)


@pytest.fixture
def auth(tmp_path: Path) -> Auth:
    return Auth(tmp_path)


def files(auth: Auth) -> list[Path]:
    return sorted((auth.directory / "key-states").iterdir())


@pytest.mark.requirement("providers:key-verdicts")
@pytest.mark.parametrize(
    ("status", "body", "action", "reason", "seconds"),
    [
        (401, BAD, "dead", "invalid_api_key", 300),
        (403, BAD, "dead", "invalid_api_key", 300),
        (429, b"", "cooldown", "http_429", 2),
        (429, GEMINI, "cooldown", "http_429", 2),
        (429, b" " * 65_536 + QUOTA, "cooldown", "http_429", 2),
        (429, QUOTA, "cooldown", "insufficient_quota", 60),
        (429, BILLING, "cooldown", "billing_hard_limit_reached", 60),
        (402, QUOTA, "cooldown", "insufficient_quota", 60),
    ],
)
def test_a_bad_key_is_dead_and_a_throttled_one_or_one_without_money_rests(
    auth: Auth, status: int, body: bytes, action: str, reason: str, seconds: int
) -> None:
    registry = auth.registry(TWO)
    assert registry.record_response(*key(registry, "sk-zero"), KeyAnswer(status, body, scope="gpt"))
    assert ready(registry) == ["sk-one"]
    (event,) = auth.said("provider_pool")
    assert (event["key_id"], event["action"], event["reason"]) == (
        "env:OPENAI_API_KEY",
        action,
        reason,
    )
    assert ready(registry, model="other") == (
        ["sk-zero", "sk-one"] if reason == "http_429" else ["sk-one"]
    )
    auth.clock += seconds - 1
    assert ready(registry) == ["sk-one"]
    auth.clock += 1
    assert ready(registry) == (["sk-one"] if action == "dead" else ["sk-zero", "sk-one"])
    assert (registry.claim(registry.all()["openai"]) is not None) == (action == "dead")


@pytest.mark.requirement("metrics:counts")
def test_the_pool_tells_how_many_keys_of_a_provider_are_in_which_state(auth: Auth) -> None:
    registry = auth.registry(TWO | {"OPENAI_API_KEY_2": "sk-two"})
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("30"))
    assert registry.count_keys() == {
        ("openai", state): 1 for state in ("ready", "cooldown", "dead")
    }
    auth.clock += 30
    assert registry.count_keys() == {("openai", "ready"): 2, ("openai", "dead"): 1}


@pytest.mark.requirement("providers:key-verdicts")
@pytest.mark.parametrize("status", [0, 200, 302, 400, 404, 408, 500, 503, 529])
def test_no_other_answer_says_anything_of_a_key(auth: Auth, status: int) -> None:
    registry = auth.registry(TWO)
    assert not registry.record_response(
        *key(registry, "sk-zero"), KeyAnswer(status, QUOTA, "30", "gpt")
    )
    assert ready(registry) == ["sk-zero", "sk-one"]
    assert auth.events == []


@pytest.mark.requirement("keys:request-only")
@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refusal_without_a_code_of_a_bad_key_leaves_it_as_it_is(auth: Auth, status: int) -> None:
    registry = auth.registry(TWO)
    assert not registry.record_response(
        *key(registry, "sk-zero"), KeyAnswer(status, SCOPES, "30", "gpt")
    )
    assert (ready(registry), auth.events) == (["sk-zero", "sk-one"], [])


SCOPES = b'{"error": {"message": "Missing scopes: api.responses.write", "type": "invalid_request_error", "code": null}}'


@pytest.mark.requirement("providers:key-states")
def test_a_key_rests_for_as_long_as_retry_after_says_within_ten_minutes(auth: Auth) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), throttled("30"))
    registry.record_response(*key(registry, "sk-one"), throttled("3600"))
    assert [registry.wait(registry.all()["openai"], "gpt"), ready(registry)] == [30.0, []]
    assert [event["cooldown_until"] for event in auth.said("provider_pool")] == [
        "2027-01-15T08:00:30.000Z",
        "2027-01-15T08:10:00.000Z",
    ]
    auth.clock += 30
    assert ready(registry) == ["sk-zero"]
    auth.clock += 570
    assert ready(registry) == ["sk-zero", "sk-one"]


@pytest.mark.requirement("keys:scopes")
def test_a_throttled_key_rests_for_that_model_only_in_all_processes(auth: Auth) -> None:
    here, there = auth.registry(TWO), auth.registry(TWO)
    here.record_response(*key(here, "sk-zero"), throttled("60", "gpt-large"))
    here.record_response(*key(here, "sk-one"), throttled("90", "gpt-large"))
    for registry in (here, there, auth.registry(TWO)):
        assert ready(registry, model="gpt-large") == []
        assert ready(registry, model="gpt-small") == ["sk-zero", "sk-one"]
        assert registry.has_usable_key()
        assert registry.wait(registry.all()["openai"], "gpt-large") == 60.0
        assert registry.count_keys() == {("openai", "cooldown"): 2}


@pytest.mark.requirement("keys:scopes")
def test_an_agent_that_names_a_thousand_models_fills_neither_disk_nor_memory(auth: Auth) -> None:
    registry = auth.registry(TWO)
    for number in range(1000):
        registry.record_response(
            *key(registry, "sk-zero"), throttled("60", f"{number}-" + "x" * 100_000)
        )
    assert len(files(auth)) <= 130
    states = registry._key_states
    assert len(states._stored) + len(states._unstored) <= 260
    assert max(file.stat().st_size for file in files(auth)) < 1000
    registry.record_response(*key(registry, "sk-one"), DEAD)
    assert ready(auth.registry(TWO)) == ["sk-zero"], "a dead key has its file all the same"
    auth.clock += 61
    assert ready(auth.registry(TWO)) == ["sk-zero"]
    assert len(files(auth)) <= 2, "what is over is removed"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("1e9", 600.0),
        ("inf", 600.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Fri, 15 Jan 2027 08:00:07 GMT", 7.0),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("Fri, 99 Jan 2027 07:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert parse_retry_after(text, 1_800_000_000.0) == seconds


@pytest.mark.requirement("providers:key-states")
def test_a_replaced_key_starts_afresh_and_the_same_key_elsewhere_is_another(auth: Auth) -> None:
    env = {"OPENAI_API_KEY": "sk-same", "XAI_API_KEY": "sk-same"}
    registry = auth.registry(env)
    registry.record_response(*key(registry, "sk-same"), DEAD)
    assert (ready(registry), ready(registry, "xai")) == ([], ["sk-same"])
    auth.write({"providers": {"openai": {"api_key": "sk-new"}}})
    assert ready(registry) == ["sk-new"]
    auth.write({"providers": {"openai": {"api_key": "sk-same"}}})
    assert ready(registry) == []


@pytest.mark.requirement("providers:key-states-persist")
def test_dead_and_resting_keys_are_so_after_a_restart(auth: Auth) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("60"))
    restarted = auth.registry(TWO)
    assert (ready(restarted), restarted.wait(restarted.all()["openai"], "gpt")) == ([], 60.0)
    auth.clock += 60
    assert ready(restarted) == ["sk-one"]


@pytest.mark.requirement("providers:key-states-persist")
def test_a_state_is_a_private_file_that_holds_no_secret(auth: Auth) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), throttled("60"))
    (file,) = files(auth)
    record = KeyRecord.model_validate_json(file.read_bytes())
    assert (record.provider, record.key_id, record.state) == (
        "openai",
        "env:OPENAI_API_KEY",
        "cooldown",
    )
    assert (record.cooldown_until, record.last_error_code) == ("2027-01-15T08:01:00.000Z", 429)
    assert b"sk-zero" not in file.read_bytes()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)] == [0o600, 0o700]


@pytest.mark.requirement("providers:key-states-persist")
def test_processes_that_share_the_directory_learn_of_each_others_keys(auth: Auth) -> None:
    here, there = auth.registry(TWO), auth.registry(TWO)
    assert (ready(here), ready(there)) == (["sk-zero", "sk-one"], ["sk-zero", "sk-one"])
    here.record_response(*key(here, "sk-zero"), DEAD)
    there.record_response(*key(there, "sk-one"), DEAD)
    assert (ready(here), ready(there), len(files(auth))) == ([], [], 2)


KILLER = """
import sys
from pathlib import Path
from claw_contract.secret import Secret
from claw_mediate.providers.key_states import KeyStates
from claw_mediate.telemetry.event_log import EventLog
from claw_mediate.core.model_policy import PoolKey
states = KeyStates(Path(sys.argv[1]), EventLog())
for number in range(40):
    secret = Secret(f"sk-{number % 30}-{sys.argv[2] if number < 20 else 'shared'}")
    states.kill("openai", PoolKey("k", secret), 401)
"""


@pytest.mark.requirement("providers:key-states-persist")
@pytest.mark.long
def test_processes_that_write_at_the_same_time_lose_nothing_and_leave_nothing_behind(
    auth: Auth,
) -> None:
    command = [sys.executable, "-c", KILLER, str(auth.directory / "key-states")]
    running = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in ("a", "b", "c")
    ]
    assert [(process.communicate()[0], process.returncode) for process in running] == [(b"", 0)] * 3
    records = [KeyRecord.model_validate_json(file.read_bytes()) for file in files(auth)]
    assert (len(records), {record.state for record in records}) == (3 * 20 + 20, {"dead"})


@pytest.mark.requirement("providers:key-states-persist")
def test_an_operator_revives_a_key_by_removing_its_file(auth: Auth) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    assert ready(registry) == ["sk-one"]
    files(auth)[0].unlink()
    assert ready(registry) == ["sk-zero", "sk-one"]


@pytest.mark.requirement("providers:key-states-persist")
def test_a_short_rest_is_not_written_and_a_known_one_is_not_logged_again(
    auth: Auth,
) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), throttled("2"))
    assert not (auth.directory / "key-states").exists()
    registry.record_response(*key(registry, "sk-one"), DEAD)
    registry.record_response(*key(registry, "sk-one"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("60"))
    assert [event["action"] for event in auth.said("provider_pool")] == ["cooldown", "dead"]
    assert ready(registry) == []


@pytest.mark.requirement("providers:key-states-broken")
@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "\xff", '{"state": "dead"}', "cooldown without a time", "a time that is none"],
)
def test_a_broken_state_is_one_event_and_a_fresh_start_for_that_key_alone(
    auth: Auth, content: str
) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), KeyAnswer(429, QUOTA))
    registry.record_response(*key(registry, "sk-one"), DEAD)
    record = next(file for file in files(auth) if b"cooldown" in file.read_bytes())
    written = json.loads(record.read_bytes())
    if content == "cooldown without a time":
        content = json.dumps(
            {name: value for name, value in written.items() if name != "cooldown_until"}
        )
    elif content == "a time that is none":
        content = json.dumps(written | {"cooldown_until": "tomorrow"})
    record.unlink()
    record.write_text(content, encoding="latin-1")
    restarted = auth.registry(TWO)
    auth.events.clear()
    assert ready(restarted) == ["sk-zero"]
    assert [event["error"] for event in auth.said("error")] == ["key_state_broken"]
    restarted.record_response(*key(restarted, "sk-zero"), DEAD)
    assert (ready(auth.registry(TWO)), len(auth.said("error"))) == ([], 1)


@pytest.mark.requirement("agents:reload-after-error")
@pytest.mark.parametrize("what", ["files", "directory"])
def test_a_dead_key_stays_dead_through_an_error_that_passes(
    auth: Auth, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    registry, other = auth.registry(TWO), auth.registry(TWO)
    registry.record_response(*key(registry, "sk-one"), DEAD)
    directory = auth.directory / "key-states"
    os.utime(directory, ns=(0, 0))  # long unchanged
    assert (ready(registry), ready(other)) == (["sk-zero"], ["sk-zero"])

    def fail(_path: Path) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    for _ in range(2):
        auth.events.clear()
        os.utime(directory, ns=(0, directory.stat().st_mtime_ns + 1))
        if what == "files":
            fail_reads(monkeypatch, key_states)
        else:
            monkeypatch.setattr(os, "listdir", fail)
            monkeypatch.setattr(os, "scandir", fail)
        restarted = auth.registry(TWO)
        assert [ready(registry) for _ in range(3)] == [["sk-zero"]] * 3
        assert [event["error"] for event in auth.said("error")] == ["key_state_broken"]
        assert ready(restarted) == ["sk-zero", "sk-one"]  # it can't know
        monkeypatch.undo()
        assert (ready(registry), ready(restarted)) == (["sk-zero"], ["sk-zero"])


@pytest.mark.requirement("agents:reload-after-error")
def test_a_file_that_could_not_be_read_is_not_deleted_for_a_rest_that_was_known_of_it(
    auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, other = auth.registry(TWO), auth.registry(TWO)
    registry.record_response(*key(registry, "sk-one"), KeyAnswer(429, QUOTA))
    assert ready(registry) == ["sk-zero"]
    auth.clock += 61
    other.record_response(*key(other, "sk-one"), DEAD)
    fail_reads(monkeypatch, key_states)
    assert ready(registry) == ["sk-zero", "sk-one"]
    monkeypatch.undo()
    assert ready(registry) == ["sk-zero"]


@pytest.fixture
def sealed(auth: Auth) -> Iterator[Auth]:
    """Return an auth directory in which a file blocks the one for key states (root
    may write anywhere: modes don't help).
    """
    (auth.directory / "key-states").write_text("", encoding="utf-8")
    return auth


@pytest.mark.requirement("providers:key-states-broken")
def test_a_directory_that_cannot_be_written_is_one_event_and_memory_holds_the_states(
    sealed: Auth,
) -> None:
    registry = sealed.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("60"))
    assert (ready(registry), registry.wait(registry.all()["openai"], "gpt")) == ([], 60.0)
    assert [event["error"] for event in sealed.said("error")] == ["key_states_not_written"]
    assert ready(sealed.registry(TWO)) == ["sk-zero", "sk-one"]


@pytest.mark.requirement("providers:operators-word")
def test_the_states_of_the_operators_file_hold_and_the_file_is_never_written(auth: Auth) -> None:
    pool = [
        {"id": "dead", "secret": "sk-1", "state": "dead"},
        {"id": "disabled", "secret": "sk-2", "state": "disabled"},
        {
            "id": "rests",
            "secret": "sk-3",
            "state": "cooldown",
            "cooldown_until": "2027-01-15T09:00:40+01:00",
        },
        {
            "id": "rested",
            "secret": "sk-4",
            "state": "cooldown",
            "cooldown_until": "2027-01-15T07:59:59Z",
        },
        {"id": "says nothing", "secret": "sk-5", "state": "cooldown", "cooldown_until": "soon"},
        {"id": "ready", "secret": "sk-6", "cooldown_until": "2099-01-01T00:00:00Z"},
    ]
    auth.write({"version": 2, "providers": {"openai": {"keys": pool}}})
    written = (auth.directory / "providers.json").read_bytes()
    registry = auth.registry()
    assert ready(registry) == ["sk-4", "sk-5", "sk-6"]
    registry.record_response(*key(registry, "sk-4"), DEAD)
    auth.clock += 40
    assert ready(registry) == ["sk-3", "sk-5", "sk-6"]
    assert (auth.directory / "providers.json").read_bytes() == written


@pytest.mark.requirement("providers:operators-word")
def test_keys_that_the_operator_laid_off_are_still_blanked_out_everywhere(auth: Auth) -> None:
    auth.write(
        {
            "version": 2,
            "providers": {
                "openai": {"keys": [{"id": "a", "secret": "sk-off", "state": "disabled"}]}
            },
        }
    )
    registry = auth.registry()
    assert [secret.reveal() for secret in registry.secrets()] == ["sk-off"]
    assert not registry.all()["openai"].is_usable


@pytest.mark.requirement("providers:ready")
def test_a_provider_serves_unless_all_of_its_keys_are_dead(
    auth: Auth,
) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("60"))
    assert registry.has_usable_key()
    registry.record_response(*key(registry, "sk-one"), DEAD)
    assert not registry.has_usable_key()
    auth.clock += 300
    assert registry.has_usable_key(), "they may be tried"
    auth.clock -= 300
    assert auth.registry(TWO | {"OLLAMA_BASE_URL": "http://ollama:11434"}).has_usable_key()


@pytest.mark.requirement("keys:trial")
def test_a_dead_key_is_tried_after_five_minutes_by_one_request_of_all_processes(auth: Auth) -> None:
    here, there = auth.registry(TWO), auth.registry(TWO)
    for secret in ("sk-zero", "sk-one"):
        here.record_response(*key(here, secret), DEAD)
    assert (claimed(here), claimed(there)) == (None, None)
    auth.clock += 300
    restarted = auth.registry(TWO)
    assert [claimed(registry) for registry in (there, here, restarted)] == [
        "sk-zero",
        "sk-one",
        None,
    ]
    assert (ready(here), ready(there), here.wait(here.all()["openai"], "gpt")) == (
        [],
        [],
        float("inf"),
    )
    there.record_response(*key(there, "sk-zero"), KeyAnswer(200))
    assert (ready(here), ready(there), ready(restarted)) == (["sk-zero"],) * 3
    here.record_response(*key(here, "sk-one"), DEAD)
    auth.clock += 299
    assert claimed(restarted) is None
    auth.clock += 1
    assert claimed(restarted) == "sk-one"
    assert [event["action"] for event in auth.said("provider_pool")] == ["dead", "dead", "ready"]


def claimed(registry: ProviderRegistry) -> str | None:
    trial = registry.claim(registry.all()["openai"])
    return None if trial is None else trial.secret.reveal()


@pytest.mark.requirement("keys:trial")
@pytest.mark.parametrize(
    "answer",
    [KeyAnswer(200), KeyAnswer(400), KeyAnswer(402), KeyAnswer(404), KeyAnswer(429, scope="gpt")],
)
def test_any_answer_that_lets_the_key_in_revives_it(auth: Auth, answer: KeyAnswer) -> None:
    registry = dead_and_due(auth)
    assert claimed(registry) == "sk-zero"
    registry.record_response(*key(registry, "sk-zero"), answer)
    assert ready(registry, model="other") == ["sk-zero", "sk-one"]


@pytest.mark.requirement("keys:trial")
@pytest.mark.parametrize(
    "answer", [KeyAnswer(0), KeyAnswer(401, SCOPES), KeyAnswer(403), KeyAnswer(500)]
)
def test_a_trial_whose_outcome_may_be_the_agents_doing_makes_the_proxy_ask(
    auth: Auth, answer: KeyAnswer
) -> None:
    registry = dead_and_due(auth)
    asked: list[str] = []
    registry.ask = lambda _, trial: asked.append(trial.secret.reveal())
    assert claimed(registry) == "sk-zero"
    registry.record_response(*key(registry, "sk-zero"), answer)
    assert (asked, ready(registry), claimed(registry)) == (["sk-zero"], ["sk-one"], None)
    registry.record_answer_to_question(*key(registry, "sk-zero"), 200, b"")
    assert ready(registry) == ["sk-zero", "sk-one"]


@pytest.mark.requirement("keys:trial")
def test_where_another_key_is_ready_no_agents_request_tries_the_dead_one(auth: Auth) -> None:
    registry = dead_and_due(auth)
    asked: list[str] = []
    registry.ask = lambda _, trial: asked.append(trial.secret.reveal())
    for _ in range(3):
        registry.check_dead_keys(registry.all()["openai"])
    assert (asked, ready(registry)) == (["sk-zero"], ["sk-one"])


@pytest.mark.requirement("keys:trial")
def test_a_late_answer_revives_no_key_that_the_proxy_asks_about(auth: Auth) -> None:
    registry = dead_and_due(auth)
    registry.ask = lambda _, __: None
    registry.check_dead_keys(registry.all()["openai"])
    registry.record_response(*key(registry, "sk-zero"), KeyAnswer(200))  # of a request from before
    assert ready(registry) == ["sk-one"]
    registry.record_answer_to_question(*key(registry, "sk-zero"), 200, b"")
    assert ready(registry) == ["sk-zero", "sk-one"]


def dead_and_due(auth: Auth) -> ProviderRegistry:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    auth.clock += 300
    return registry


@pytest.mark.requirement("keys:trial")
def test_a_state_of_an_earlier_version_is_tried_again_too(auth: Auth) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    (file,) = files(auth)
    written = json.loads(file.read_bytes())
    del written["retry_at"]
    file.write_text(json.dumps(written), encoding="utf-8")
    restarted = auth.registry(TWO)
    assert (ready(restarted), claimed(restarted)) == (["sk-one"], None)
    auth.clock += 300
    assert claimed(restarted) == "sk-zero"


@pytest.mark.requirement("keys:trial")
def test_a_directory_that_cannot_be_written_has_trials_in_memory(sealed: Auth) -> None:
    registry = dead_and_due(sealed)
    assert [claimed(registry), claimed(registry)] == ["sk-zero", None]
    registry.record_response(*key(registry, "sk-zero"), KeyAnswer(200))
    assert ready(registry) == ["sk-zero", "sk-one"]


@pytest.mark.requirement("keys:clock")
@pytest.mark.parametrize("jump", [-86_400, -3600, 3600, 86_400 * 3650])
def test_a_clock_that_jumps_keeps_no_key_out_for_longer_than_a_state_lasts(
    auth: Auth, jump: float
) -> None:
    registry = auth.registry(TWO)
    registry.record_response(*key(registry, "sk-zero"), DEAD)
    registry.record_response(*key(registry, "sk-one"), throttled("600"))
    auth.clock += jump
    assert ready(registry) == ["sk-one"]
    assert [claimed(registry), claimed(auth.registry(TWO))] == ["sk-zero", None]
    registry.record_response(*key(registry, "sk-one"), throttled("60"))
    assert registry.wait(registry.all()["openai"], "gpt") == 60.0


@pytest.mark.requirement("providers:operators-word")
def test_a_key_that_the_operator_laid_off_is_never_tried(auth: Auth) -> None:
    registry = dead_and_due(auth)
    pool = [{"id": "a", "secret": "sk-zero", "state": "disabled"}]
    auth.write({"version": 2, "providers": {"openai": {"keys": pool}}})
    auth.clock += 3600
    assert (claimed(registry), registry.has_usable_key()) == (None, False)
