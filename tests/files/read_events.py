"""Prints the scalars of a folder as TensorBoard sees them: tag, step, value, wall time."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for event in events.Scalars(tag):
        print(tag, event.step, event.value, event.wall_time)
