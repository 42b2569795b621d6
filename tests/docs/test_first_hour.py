"""The README's path from install to the first mediated answer, word for word.

Only ports and the model are the test's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.image.dockerfile import copied_context
from tests.peers import Provider, text
from tests.waiting import eventually, free_port

README = ROOT / "README.md"
KEY = "sk-..."
"""The key as the page has it."""
ANSWER = "The time in any time zone."


def block(word: str) -> str:
    (only,) = blocks(README, word)
    assert only.words == ("first-hour", word)
    return only.text


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Return an environment with nothing of ours, which borrows from the tests'
    environment instead of downloading.
    """
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    # .pth files in the borrowed directory are not read, so the editable install of this checkout is
    # not visible.
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{pip.with_name("python")}" -m pip "$@"\n', encoding="utf-8")
    pip.chmod(0o755)
    return tmp_path / "venv" / "bin"


@pytest.fixture
def provider() -> Iterator[Provider]:
    scripted = Provider()
    scripted.start()
    yield scripted
    scripted.stop()


@pytest.fixture
def environment(fresh: Path, tmp_path: Path, provider: Provider) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return {
        "PATH": f"{fresh}:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "NO_PROXY": "localhost,127.0.0.1",
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "LISTEN_ADDR": f"127.0.0.1:{free_port()}",
        "CLAW_PROXY_ADDR": f"127.0.0.1:{free_port()}",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip turns build isolation off with "0"
    }


@pytest.fixture
def proxy(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """Run the first block, whose last command starts the proxy; yield the pod's directory."""
    context, output = copied_context(tmp_path), tmp_path / "output.log"
    with output.open("wb") as file:
        shell = subprocess.Popen(
            ["sh", "-e", "-c", block("proxy")],
            cwd=context,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        eventually(
            lambda: _is_ready(shell, environment["LISTEN_ADDR"], output), "the proxy is ready"
        )
        yield context / "my-pod"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(timeout=20)


def _is_ready(shell: subprocess.Popen[bytes], address: str, output: Path) -> bool:
    assert shell.poll() is None, output.read_text(encoding="utf-8")
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://{address}/ready", timeout=2) as response,
    ):
        return bool(response.status == 200)
    return False


@pytest.mark.timeout(240)
@pytest.mark.requirement("docs:first-hour")
def test_the_commands_of_the_readme_lead_to_a_mediated_answer(
    proxy: Path, environment: dict[str, str], provider: Provider
) -> None:
    provider.says(text(ANSWER))
    (proxy / "my_agent.py").write_text(block("my_agent.py"), encoding="utf-8")
    command = block("agent").replace("localhost:8080", environment["LISTEN_ADDR"])
    agent = subprocess.run(
        ["sh", "-e", "-c", command],
        cwd=proxy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (agent.stdout, agent.stderr) == (f"{ANSWER}\n", "")
    (request,) = [each for each in provider.received if each.path.endswith("/chat/completions")]
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert [tool["function"]["name"] for tool in request.json["tools"]] == ["clock__get_time"]
    doctor = subprocess.run(
        ["claw", "doctor"],
        cwd=proxy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert f"http://{environment['LISTEN_ADDR']} is ready" in doctor.stdout


@pytest.mark.requirement("docs:first-hour")
def test_the_first_screen_has_the_picture_the_install_five_commands_and_the_two_that_set_up() -> (
    None
):
    screen = README.read_text(encoding="utf-8").partition("## How it works")[0]
    for word in (
        "make demo",
        "make test",
        "](docs/mitmweb.png)",
        "https://github.com/mostlydev/clawdapus",
        "Status: ",
    ):
        assert word in screen
    commands = f"{block('proxy')}{block('agent')}"
    assert all(
        word in commands
        for word in ("pip install", "claw init", "claw compile", "claw proxy", "claw token")
    )
    assert screen.count("\n| **") == 4


def test_nothing_of_the_checkout_is_seen_before_the_install(fresh: Path, tmp_path: Path) -> None:
    look = (
        "import importlib.util as u, sys; sys.exit(u.find_spec('claw_cli') is not None or "
        "u.find_spec('openai') is None)"
    )
    assert (
        subprocess.run(
            [fresh / "python", "-c", look], cwd=tmp_path, env={}, check=False, timeout=60
        ).returncode
        == 0
    )
    assert Path(sys.prefix) not in fresh.parents
