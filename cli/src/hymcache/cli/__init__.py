"""The hymcache command."""
