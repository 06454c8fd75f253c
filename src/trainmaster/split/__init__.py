"""Places the operators of one model on several devices: graph, placers, and the time that a step takes."""
