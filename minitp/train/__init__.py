"""Training through the cuts: data, step, optimizer, schedule, checkpoints, the loop."""
