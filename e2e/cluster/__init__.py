"""A kind cluster of one control plane and two workers on one Debian machine, with HyMCache installed.

Everything in it is made here: the programs are compiled from Go modules (`e2e/tools`), the file systems come from
Debian packages, our own images from this repository. `python -m cluster up | down` are the verbs behind
`make cluster-up` and `make cluster-down`; the tests in `tests/` use the same functions.
"""
