"""Machines elsewhere: what they cost, how they are rented, and that none is left.

Training itself knows nothing of this. A provider has offers (:mod:`.base`), a quote
says what a run would cost on one (:mod:`.quote`), and a lease rents it for the time of
a ``with`` block and ends it whatever happens (:mod:`.lease`).
"""
