"""The order of test modules (tests/order.py)."""

from __future__ import annotations

from pathlib import Path, PurePath

from tests.order import LONG_MODULES, in_running_order

TESTS = Path(__file__).parent


def test_each_long_module_is_there() -> None:
    assert [module for module in LONG_MODULES if not (TESTS / module).is_file()] == []


def test_stages_are_spread_over_the_run_and_each_begins_with_its_long_modules() -> None:
    computing = ("compile/test_a.py", "compile/test_b.py", LONG_OF_COMPILE)
    waiting = ("proxy/test_a.py", LONG_OF_PROXY)
    order = in_running_order(PurePath(module) for module in (*computing, *waiting))
    assert [str(module) for module in order] == [
        LONG_OF_COMPILE,
        LONG_OF_PROXY,
        "compile/test_a.py",
        "proxy/test_a.py",
        "compile/test_b.py",
    ]


LONG_OF_COMPILE, LONG_OF_PROXY = (
    next(module for module in LONG_MODULES if module.startswith(folder))
    for folder in ("compile/", "proxy/")
)
