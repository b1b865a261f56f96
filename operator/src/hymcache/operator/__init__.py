"""The operator: composes regions for claims and keeps the cluster's view of them true."""
