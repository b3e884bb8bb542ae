"""How a model learns: the schedule, the loop, checkpoints."""
