"""The manifests for Kubernetes."""
