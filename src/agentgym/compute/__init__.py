"""Rent machines from providers, estimate the cost, and end every rented machine.

The training code does not depend on this package. A provider has offers (:mod:`.base`),
a quote estimates the cost of a run on one (:mod:`.quote`), and a lease rents a machine
for a ``with`` block and always ends (deletes) the machine (:mod:`.lease`).
"""
