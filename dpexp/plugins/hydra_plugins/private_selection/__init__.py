"""Hydra's `hydra/sweeper=private_selection`."""
