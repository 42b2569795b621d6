"""Descriptors of services, their lock, and skills."""
