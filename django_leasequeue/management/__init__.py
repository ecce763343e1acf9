"""Management commands.

`base` has the options and the errors that commands share, `table` prints rows; the commands import both.
"""
