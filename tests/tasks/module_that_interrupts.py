"""A module that interrupts whoever imports it."""

raise KeyboardInterrupt
