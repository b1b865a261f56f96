"""The only door to the API server: raw objects in and out, server-side apply, preconditions on every write."""
