"""The namespaces of these tests are gone afterwards, however a test ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.namespaces import Namespace, RefusedError
from tests.not_tested import need, skip_for_kernel
from tests.proxy.pod import ROOT
from tests.waiting import eventually

MADE = """
from tests.gateway.namespaces import Namespace
one, other = Namespace(), Namespace()
one.joined(other, "net1", 1, 2)
print(one.pid, other.pid, flush=True)
input()
"""


@pytest.mark.requirement("gateway:nothing-left")
def test_a_test_that_is_killed_leaves_no_namespace_and_no_process() -> None:
    need("ip")
    need("nft")
    try:
        Namespace().close()
    except RefusedError as refused:
        skip_for_kernel("network namespaces", refused)
    command = [sys.executable, "-c", MADE]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        holders = process.stdout.readline().split()
        assert len(holders) == 2
        process.kill()
    eventually(
        lambda: not any(Path("/proc", holder).exists() for holder in holders), "both are gone"
    )
