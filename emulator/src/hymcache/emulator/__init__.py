"""A CXL memory appliance in one process."""
