"""Model families: a frozen config to describe one, and pure functions to run it."""
