"""The HTTP doors: what they share. Each door is a package of its own."""
