"""Drivers of other systems with durable steps: scripts for a Python of their own, which has those packages.

Each takes the parts of a connection to an empty database as JSON, a number of jobs and a number of threads. It enqueues
the jobs, lets one worker process run them, and prints how many seconds that took, from the start of the process to the
last end. A job has five steps that do nothing.
"""
