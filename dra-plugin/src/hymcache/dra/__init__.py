"""The kubelet DRA plugin: attaches regions to a node and injects them into pods."""
