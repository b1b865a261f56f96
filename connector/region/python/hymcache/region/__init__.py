"""CXL memory regions: format, attach, look up, put and get KV objects in shared memory."""
