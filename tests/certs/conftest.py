"""The pod of the proxy's tests."""

from tests.proxy.conftest import pod

__all__ = ["pod"]
