"""Auctions of leased GPUs between apps: what bundles are worth, who wins, what is paid.

For `themis`.
"""
