"""How a model learns: the run, the loop, one step, the schedule, checkpoints, many processes."""
