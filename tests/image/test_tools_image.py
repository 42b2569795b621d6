"""The image of the tools host, by its stage of the Dockerfile."""

from __future__ import annotations

import json
import tomllib

import pytest

from claw_compile.output.stdio_wrapper import HEALTH
from claw_compile.output.tools_host import IMAGE, SERVE, WORKSPACES
from tests.image.dockerfile import ROOT, Step, commanded, stages


def stage() -> list[Step]:
    (found,) = [steps for steps in stages() if steps[0].rest.endswith(" AS tools-host")]
    return found


def only(name: str) -> Step:
    (found,) = [step for step in stage() if step.name == name]
    return found


@pytest.mark.requirement("toolspod:image")
def test_the_images_entry_point_and_health_are_those_that_are_compiled() -> None:
    assert json.loads(only("ENTRYPOINT").rest) == [*SERVE]
    assert commanded(only("HEALTHCHECK")) == ["python", "-c", HEALTH.format(port=8080)]
    assert only("EXPOSE").words == ["8080"]


@pytest.mark.requirement("toolspod:image")
def test_it_has_the_package_git_a_place_for_workspaces_and_no_rights() -> None:
    assert [step.words for step in stage() if step.name == "COPY"] == [["/opt/claw", "/opt/claw"]]
    (run,) = [step.rest for step in stage() if step.name == "RUN"]
    assert "--no-install-recommends git " in run
    assert f"--mode=1777 {WORKSPACES}" in run
    assert only("USER").rest == "52110:52110"
    assert "HOME=/tmp" in only("ENV").words, "the root of its container is read-only"


@pytest.mark.requirement("toolspod:image")
def test_its_tag_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    assert f"clawdapus/claw-tools:{version}" == IMAGE
    assert f"docker build --target tools-host -t {IMAGE} ." in (ROOT / "Dockerfile").read_text(
        "utf-8"
    )
    assert f'org.opencontainers.image.version="{version}"' in only("LABEL").rest
