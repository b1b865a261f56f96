"""The vLLM connector."""
