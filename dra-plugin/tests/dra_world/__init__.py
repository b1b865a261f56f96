"""The world around a plugin, in one process: an API server of dicts, an operator, an appliance, nodes with kubelets.

Small on purpose: what a real API server does with server-side apply and policies is tested against one, in
`e2e/controlplane`.
"""
