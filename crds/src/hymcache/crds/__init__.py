"""The HyMCache Kubernetes API: one pydantic model per kind."""
