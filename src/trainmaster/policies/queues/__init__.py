"""Between queues: what each may hold, who takes back from whom, and what is lent.

For `fair`, `two-level`, `philly` and the quotas of `antman`.
"""
