"""Usage records: taken from edges at least once, stored exactly once, rated again and summed.

A record's day comes from its request id, so one id has one partition for ever. What contradicts the stored truth or
the price list is put into quarantine, never dropped and never billed.
"""
