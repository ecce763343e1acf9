"""Dead letters: finding, reading and acting on them."""
