"""Rent machines: providers, prices, leases, and ending every rented machine.

Training itself knows nothing of this. A provider has offers (:mod:`.base`), a quote has
the expected cost of a run on one (:mod:`.quote`), and a lease rents it for the time of
a ``with`` block and ends it whatever happens (:mod:`.lease`).
"""
