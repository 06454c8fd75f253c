"""How many GPUs each elastic job gets, and how running ones come to that number.

`max-min` and `afs-l` divide anew when a job comes or goes; `optimus` at the end of an interval.
"""
