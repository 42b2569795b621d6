"""Tests that can't run on this machine: they are skipped with a reason and a remedy, listed at the
end of the run, and with ``CI=true`` they are failures, unless it is the kernel that refuses.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest

REMEDIES = {
    "chromium": "apt-get install chromium",
    "curl": "apt-get install curl",
    "git": "apt-get install git",
    "haproxy": "apt-get install haproxy",
    "ip": "apt-get install iproute2",
    "java": "apt-get install default-jdk-headless",
    "keytool": "apt-get install default-jdk-headless",
    "nft": "apt-get install nftables",
    "openssl": "apt-get install openssl",
    "valkey-server": "apt-get install valkey-server",
}
"""Programs that neither pip nor npm installs, with the command that does.

``scripts/get-peers`` runs it.
"""
_REFUSED = "the kernel refuses "


def skip_for(program: str) -> NoReturn:
    """Skip the test that needs a program which is not on the PATH."""
    pytest.skip(f"{program} is not installed: {REMEDIES.get(program, 'make setup')}")


def need(program: str) -> str:
    """Return the path of a program; skip the test if it is not on the PATH."""
    path = shutil.which(program)
    return skip_for(program) if path is None else path


def skip_for_kernel(feature: str, why: object = "") -> NoReturn:
    """Skip the test that needs, for example, network namespaces, on a machine that
    has none for us.
    """
    detail = f" ({why})" if str(why) else ""
    pytest.skip(
        f"{_REFUSED}{feature}{detail}: run as root, in a container only if it is privileged"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skip a failure under CI, where no test may be left out because a
    program is missing.
    """
    report = yield
    reason = _reason(report)
    if reason and os.environ.get("CI") == "true" and not reason.startswith(_REFUSED):
        report.outcome, report.longrepr = (
            "failed",
            f"not tested, and CI=true: {item.nodeid}: {reason}",
        )
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what was not tested, once for each reason, with the number of tests and
    their folders.
    """
    reports: dict[str, list[Path]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if reason := _reason(report):
            reports.setdefault(reason, []).append(Path(report.nodeid.partition("::")[0]))
    if not reports:
        return
    terminalreporter.section("not tested")
    for reason, files in sorted(reports.items()):
        folders = sorted({str(file.parent) for file in files})
        terminalreporter.line(f"{len(files)} in {', '.join(folders)}: {reason}")


def _reason(report: Any) -> str:
    """Return why a test, or a module, was skipped; "" if it was not, or if it
    failed as expected.
    """
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return ""
    return str(report.longrepr[2]).removeprefix("Skipped: ")
