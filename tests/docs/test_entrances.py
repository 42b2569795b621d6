"""The pages of the entrances: their commands and code run as they stand, and the environment they
show is the compiled one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from claw_compile.output.compose.proxy_service import REDIRECTION
from tests.docs.conftest import (
    ANSWER,
    CA,
    KEY,
    PAGES,
    DocumentedPod,
    compiled,
    compiled_env,
    start_arguments,
)
from tests.docs.pages import ENTRANCES, ROOT, Block, blocks
from tests.not_tested import need
from tests.sdks.hearing import JAVASCRIPT, install

SECONDS = 100
RUNNERS = ENTRANCES / "runners.md"
RUNS = [
    (mode, block)
    for mode, page in PAGES.items()
    for block in blocks(ENTRANCES / f"{page}.md", "run")
]
# The transparent entrance needs a redirect: tests/gateway runs SDKs behind one.
RUNS += [(mode, block) for block in blocks(RUNNERS, "run") for mode in ("base-url", "proxy")]
CODE = [run for run in RUNS if run[1].language != "sh"]
COMMANDS = [run for run in RUNS if run[1].language == "sh"]


def ran(documented: DocumentedPod, mode: str, command: list[str], **more: str) -> str:
    """Run the command with nothing but the environment of this entrance's agent;
    return its output.
    """
    environment = documented.environment(mode) | more
    done = subprocess.run(
        command,
        cwd=documented.pod.home / "runner",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_code(documented: DocumentedPod, block: Block) -> list[str]:
    """Return the command that runs the code of a page."""
    if block.language == "python":
        return [sys.executable, "-c", block.text]
    install()
    modules = documented.pod.home / "runner" / "node_modules"
    if not modules.exists():
        modules.symlink_to(JAVASCRIPT / "node_modules")
    file = modules.parent / "code.mjs"
    file.write_text(block.text, encoding="utf-8")
    return ["node", str(file)]


@pytest.mark.requirement("docs:code-runs")
@pytest.mark.parametrize(("mode", "block"), CODE, ids=str)
def test_the_code_of_a_page_gets_an_answer_that_a_hidden_call_went_into(
    documented: DocumentedPod, mode: str, block: Block
) -> None:
    before = len(documented.pod.provider.received)
    assert ANSWER in ran(documented, mode, of_code(documented, block))
    asked = documented.pod.provider.received[before:]
    assert len(asked) == 2
    assert all(
        KEY in {sent.headers.get("authorization", "")[7:], sent.headers.get("x-api-key")}
        for sent in asked
    )


@pytest.mark.requirement("docs:code-runs")
@pytest.mark.parametrize(("mode", "block"), COMMANDS, ids=str)
def test_the_commands_of_a_page_say_what_it_says(
    documented: DocumentedPod, mode: str, block: Block
) -> None:
    page = block.page.read_text(encoding="utf-8")
    behind = page.split(block.text, 1)[1].removeprefix("```\n").strip().splitlines()[0]
    need("curl")
    said = ran(documented, mode, ["bash", "-ec", block.text])
    promised = re.findall(r"`([^`]+)`", behind) if behind.startswith("This prints ") else [ANSWER]
    assert promised
    for words in promised:
        assert words in said


@pytest.mark.requirement("docs:environment")
@pytest.mark.parametrize("mode", PAGES)
def test_the_environment_of_a_page_is_what_is_compiled(tmp_path: Path, mode: str) -> None:
    compiled(tmp_path, {"analyst": mode})
    written = re.sub(
        r"(?<==)analyst:\w+$", "analyst:…", compiled_env(tmp_path, "analyst"), flags=re.MULTILINE
    )
    (block,) = blocks(ENTRANCES / f"{PAGES[mode]}.md", "env")
    assert block.text == written


@pytest.mark.requirement("docs:environment")
@pytest.mark.parametrize("mode", PAGES)
def test_the_proxy_is_started_as_compose_starts_it(tmp_path: Path, mode: str) -> None:
    compiled(tmp_path, {"analyst": mode})
    compose = yaml.safe_load((tmp_path / "compose.generated.yml").read_text(encoding="utf-8"))
    proxy = compose["services"]["cllama"]
    ours, arguments = proxy["command"][3:5], proxy["command"][5:]
    assert ours == ["--set", "confdir=/tmp/mitmproxy"]  # a writable place in the container
    assert start_arguments(mode) == arguments
    (page,) = blocks(ENTRANCES / f"{PAGES[mode]}.md", "start")
    ca = proxy["environment"].get("CLLAMA_CA", "").replace("/claw/ca", ".claw-ca/private")
    assert (f"CLLAMA_CA={ca}" == CA) == (CA in page.text) == (mode != "base-url")
    mounted = [volume["source"] for volume in proxy["volumes"]]
    assert ("./.claw-ca/private" in mounted) == (mode != "base-url")


@pytest.mark.requirement("docs:environment")
def test_the_redirect_is_the_one_that_is_compiled() -> None:
    (block,) = blocks(ENTRANCES / "transparent.md", "redirect")
    assert block.text == f"nft '{REDIRECTION}'\n"
    assert shutil.which("nft") is None or subprocess.run(
        ["nft", "--check", REDIRECTION], capture_output=True, check=False
    ).returncode in {0, 1}


@pytest.mark.requirement("docs:code-runs")
def test_the_versions_of_the_page_are_those_that_run_here() -> None:
    page = RUNNERS.read_text(encoding="utf-8")
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
        if "==" in line
    )
    scripts = json.loads((JAVASCRIPT / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, python, script in (
        ("OpenAI", "openai", "openai"),
        ("Anthropic", "anthropic", "@anthropic-ai/sdk"),
    ):
        assert f"{name} SDK (Python {pinned[python]}, JS {scripts[script]})" in page
