"""Who is asking: passwords, signed tokens, login sessions, and what slows guessing down."""
