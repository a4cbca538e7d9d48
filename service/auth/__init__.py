"""Authentication: passwords, login sessions, tokens, authorization codes, consent rules, throttling, CSRF."""
