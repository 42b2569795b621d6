"""The image of ``claw mcp-stdio``, by its stage of the Dockerfile."""

from __future__ import annotations

import json
import tomllib

import pytest

from claw_compile.output.stdio_wrapper import ENTRYPOINT, HEALTH
from tests.image.dockerfile import ROOT, Step, commanded, stages


def stage() -> list[Step]:
    (found,) = [steps for steps in stages() if steps[0].rest.endswith(" AS mcp-stdio")]
    return found


def only(name: str) -> Step:
    (found,) = [step for step in stage() if step.name == name]
    return found


@pytest.mark.requirement("wrapper:image")
def test_the_images_entry_point_and_health_are_those_that_are_compiled() -> None:
    assert json.loads(only("ENTRYPOINT").rest) == [*ENTRYPOINT]
    assert commanded(only("HEALTHCHECK")) == ["python", "-c", HEALTH.format(port=8080)]
    assert only("EXPOSE").words == ["8080"]
    assert "LISTEN_ADDR=:8080" in only("ENV").words


@pytest.mark.requirement("wrapper:image")
def test_it_has_the_package_the_launchers_and_no_rights() -> None:
    copied = {tuple(step.words) for step in stage() if step.name == "COPY"}
    assert ("/opt/claw", "/opt/claw") in copied
    assert ("/usr/local/bin/node", "/usr/local/bin/node") in copied
    installed = next(step.rest for step in stages()[0] if step.name == "RUN")
    assert "'uv" in installed
    assert only("USER").rest == "52110:52110"
    assert "HOME=/claw/home" in only("ENV").words
    assert "--mode=1777 /claw/home" in next(step.rest for step in stage() if step.name == "RUN")


@pytest.mark.requirement("wrapper:image")
def test_its_tag_has_the_version_of_the_package() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    tag = f"clawdapus/claw-mcp-stdio:{version}"
    assert f"docker build --target mcp-stdio -t {tag} ." in (ROOT / "Dockerfile").read_text("utf-8")
    assert f'org.opencontainers.image.version="{version}"' in only("LABEL").rest
    assert f"image: {tag}" in (ROOT / "pods/research/claw-pod.yml").read_text("utf-8")
