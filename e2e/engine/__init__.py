"""Real vLLM servers for tests and the demo: their environment, models, processes and a client."""
