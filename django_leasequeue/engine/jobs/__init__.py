"""Jobs: adding them, reading them, taking them out.

Tasks and queues call it to enqueue, readers to find jobs, settling to write results. Start at `enqueue.py`.
"""
