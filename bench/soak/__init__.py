"""Campaigns against the region: processes that are killed, frozen and starved, and a million cycles."""
