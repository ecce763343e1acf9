"""Recurring tasks."""
