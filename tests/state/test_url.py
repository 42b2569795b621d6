"""The value of ``CLAW_STATE``: memory, a file, or a server, whose password is in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_state.url import File, ServerAddress, parse_place

PASSWORD = "hush%2Fhush"


@pytest.mark.requirement("state:no-secrets")
def test_nothing_is_memory_and_a_path_is_a_file() -> None:
    assert parse_place("") == File("")
    assert parse_place("").shown == "memory"
    assert parse_place("/data/state.db") == File("/data/state.db")


@pytest.mark.requirement("state:no-secrets")
def test_a_link_to_a_file_is_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    (tmp_path / "link").symlink_to(tmp_path / "state.db")
    assert parse_place(str(tmp_path / "link")) == File(str(tmp_path / "state.db"))


@pytest.mark.requirement("state:no-secrets")
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://:{PASSWORD}@cache", "redis://cache:6379/0"),
        (f"rediss://user:{PASSWORD}@cache:6380/2", "rediss://cache:6380/2"),
        (f"REDIS://:{PASSWORD}@[::1]:6380", "redis://[::1]:6380/0"),
    ],
)
def test_a_url_is_a_server_that_is_shown_without_its_password(url: str, shown: str) -> None:
    server = parse_place(url)
    assert isinstance(server, ServerAddress)
    assert server.shown == shown
    assert PASSWORD not in repr(server)
    assert server.url.reveal() == url
    assert {secret.reveal() for secret in server.secrets} == {url, PASSWORD, "hush/hush"}


@pytest.mark.requirement("state:no-secrets")
@pytest.mark.parametrize(
    "url",
    [
        f"http://:{PASSWORD}@cache",
        f"redis://:{PASSWORD}@",
        f"redis://:{PASSWORD}@cache:port",
        f"redis://:{PASSWORD}@cache/db",
        f"redis://:{PASSWORD}@cache/{'1' * 5000}",
        f"redis://:{PASSWORD}@cache/\N{ARABIC-INDIC DIGIT THREE}",
        f"redis://:{PASSWORD}@cache/0?ssl=1",
    ],
)
def test_another_url_is_refused_in_one_line_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="redis://") as caught:
        parse_place(url)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)
