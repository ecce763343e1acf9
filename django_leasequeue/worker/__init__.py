"""The worker: claims jobs in batches, runs them in threads and in an event loop, and settles them in batches."""
