"""The Python API of one queue: producers, consumers, buffers, request and response, heartbeats.

Start with `queue.py`: `Queue` gathers the methods of `enqueue`, `lease` and itself. HTTP, Spark, testing and the
facades may import this folder; it imports the engine, notify and the worker.
"""
