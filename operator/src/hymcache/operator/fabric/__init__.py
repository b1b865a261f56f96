"""Fabric managers: one port, one backend per way to speak to them."""
