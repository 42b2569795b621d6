from tests.failures.conftest import _one_trust_store

__all__ = ["_one_trust_store"]
