"""The HTTP front: authentication, faults, errors, and the application that carries Redfish and the admin API."""
