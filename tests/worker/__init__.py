"""Tests of the worker and of waiting."""
