"""Generated stubs of the kubelet's protocol; see tools/gen_kubelet_stubs.py."""
