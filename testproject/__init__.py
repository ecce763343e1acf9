"""The project that the demo, the tests and the benchmarks run in."""
