"""Settings: the values that each accepts, and one line that names a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_mediate.settings import SETTINGS, Setting, Settings, parse_address

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
DEFAULTS = {setting.name: setting.default for setting in SETTINGS}


@pytest.mark.requirement("settings:defaults", "egress:shell-defaults")
def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings.of(DEFAULTS)
    assert (settings.context, settings.auth, settings.history) == (
        Path("/claw/context"),
        Path("/claw/auth"),
        None,
    )
    assert (settings.keepalive, settings.keepalive_first, settings.egress) == (1.0, 2.0, "deny")
    assert (settings.feed_bytes, settings.feeds_bytes, settings.feed_seconds) == (32768, 65536, 3.0)
    assert (DEFAULTS["listen"], DEFAULTS["proxy"]) == ("127.0.0.1:8080", "127.0.0.1:8082")
    assert (settings.max_agent_body_bytes, settings.max_body_bytes) == (128 << 20, 512 << 20)
    assert (settings.time_line, settings.budget_fail_mode) == (False, "open")
    names = {setting.name: setting.env for setting in SETTINGS}
    assert names["context"] == "CLAW_CONTEXT_ROOT"
    assert names["auth"] == "CLAW_AUTH_DIR"
    assert names["history"] == "CLAW_SESSION_HISTORY_DIR"
    assert names["state"] == "CLAW_STATE"
    assert len(set(names.values())) == len(SETTINGS)


@pytest.mark.requirement("settings:wrong")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("egress", "Allow"),
        ("egress", ""),
        ("dispatch", "slow"),
        ("keepalive_openai", "Native"),
        ("feed_max_response_bytes", "0"),
        ("feed_max_total_bytes", "-1"),
        ("feed_fetch_timeout_ms", "99"),
        ("feed_fetch_timeout_ms", "120001"),
        ("time_line", "yes"),
        ("budget_fail_mode", "shut"),
        ("history_max_bytes", "0"),
        ("history_max_bytes", "1e6"),
        ("history_files", "0"),
        ("history_files", "101"),
        ("keepalive_ms", "-1"),
        ("keepalive_ms", ""),
        ("keepalive_first_ms", "1.5"),
        ("live_first_ms", "0"),
        ("live_idle_ms", "2m"),
        ("live_max_ms", ""),
        ("keepalive_names", "true"),
        ("history_max_bytes", "9" * 5000),
        ("history_files", "9" * 5000),
        ("history_files", "٣"),
        ("drain_ms", "9" * 5000),
        ("metrics", f":{'9' * 5000}"),
        ("hosts", "a.test"),
        ("hosts", "a.test=,b=c"),
        ("hosts", "=openai"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_the_setting_and_the_value(
    name: str, value: str
) -> None:
    with pytest.raises(ValueError, match=f"^cllama_{name} takes .*") as caught:
        Settings.of(DEFAULTS | {name: value})
    assert "\n" not in str(caught.value)


@pytest.mark.requirement("live:settings")
def test_the_times_of_live_streams_are_settings_in_milliseconds() -> None:
    settings = Settings.of(DEFAULTS)
    assert (settings.live_first, settings.live_idle, settings.live_max) == (10.0, 120.0, 1800.0)
    values = {"live_first_ms": "500", "live_idle_ms": "1500", "live_max_ms": "60000"}
    changed = Settings.of(DEFAULTS | values)
    assert (changed.live_first, changed.live_idle, changed.live_max) == (0.5, 1.5, 60.0)


@pytest.mark.requirement("live:keepalive-names")
def test_keepalives_name_tools_unless_the_setting_says_off() -> None:
    assert Settings.of(DEFAULTS).pace("openai").names_tools
    assert not Settings.of(DEFAULTS | {"keepalive_names": "off"}).pace("openai").names_tools


@pytest.mark.requirement("settings:documented")
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_page_of_settings_names_it_with_its_option_and_its_default(setting: Setting) -> None:
    (row,) = [
        line for line in PAGE.splitlines() if line.startswith("|") and f"`{setting.env}`" in line
    ]
    assert f"`cllama_{setting.name}`" in row
    if setting.default:
        assert setting.default in row.split("|")[3]


@pytest.mark.requirement("providers:hosts")
def test_hosts_are_pairs_in_lower_case() -> None:
    assert Settings.of(DEFAULTS | {"hosts": " A.test=openai, b.test=x ,"}).hosts == {
        "a.test": "openai",
        "b.test": "x",
    }


@pytest.mark.parametrize(
    ("text", "parts"),
    [(":8080", ("", 8080)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:65535", ("[::1]", 65535))],
)
def test_an_address_is_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert parse_address(text, "listen") == parts


@pytest.mark.parametrize(
    "text", ["", ":", ":0", ":65536", "host:", "host:x", ":-1", ":８０８０", f":{'9' * 5000}"]
)
def test_what_is_no_address_is_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="cllama_listen takes HOST:PORT"):
        parse_address(text, "listen")
