"""Jobs in line: who runs when all are ordered by one rank, who may overtake, who may grow.

`fifo` and `yarn-cs` start in order; `srtf`, `srsf`, `las`, `gittins` and the `tiresias` pair preempt by
rank; `service` is what the Gittins index is made of.
"""
