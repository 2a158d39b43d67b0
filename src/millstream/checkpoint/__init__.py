"""Checkpoints and savepoints: snapshots, manifests, storage, restore and inspection."""
