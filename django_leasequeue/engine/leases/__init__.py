"""Leases: claiming, settling, extending, expiring."""
