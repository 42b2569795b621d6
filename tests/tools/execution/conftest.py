"""Hosts that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.execution.exec_hosts import HOSTS, Host, let_others_in, running_host


@pytest.fixture(scope="module", params=HOSTS)
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    home = tmp_path_factory.mktemp("commands")
    let_others_in(home)
    with running_host(request.param, home) as running:
        yield running
