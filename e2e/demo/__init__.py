"""`make demo`: two vLLM servers on two hosts of one memory appliance share a prefix."""
