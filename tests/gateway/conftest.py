from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gateway.namespaces import RefusedError
from tests.gateway.topology import Form, Topology, topology
from tests.not_tested import need, skip_for_kernel
from tests.waiting import eventually


@contextmanager
def _made(factory: pytest.TempPathFactory, form: Form, egress: str) -> Iterator[Topology]:
    need("ip")
    need("nft")
    try:
        with topology(factory.mktemp(form), form, egress) as made:
            yield made
    except RefusedError as refused:
        skip_for_kernel("network namespaces", refused)


@pytest.fixture(scope="package", params=["compose", "classic", "kubernetes"])
def every_form(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topology]:
    with _made(tmp_path_factory, request.param, "deny") as made:
        yield made


@pytest.fixture(scope="package")
def open_pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """Yield a gateway that lets ungoverned traffic through."""
    with _made(tmp_path_factory, "classic", "allow") as made:
        yield made


@pytest.fixture
def pod(every_form: Topology) -> Topology:
    """Return the one pod of each form, cleared of the test before."""
    return _clean(every_form)


@pytest.fixture
def allowing(open_pod: Topology) -> Topology:
    return _clean(open_pod)


def _clean(made: Topology) -> Topology:
    def over() -> bool:
        asked, ended = (
            {event["turn_id"] for event in made.pod.log() if event["type"] in kinds}
            for kinds in ({"request"}, {"response", "error"})
        )
        return asked <= ended

    eventually(over, "what the test before has asked is over")
    made.forget()
    return made
