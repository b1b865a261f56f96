"""What kopf calls: handlers that put an object into the store and wake keys, nothing more."""
