"""The fixtures of the proxy's tests, for the tests of the CA."""

from tests.proxy.conftest import pod

__all__ = ["pod"]
