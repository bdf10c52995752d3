"""Configurations of other people's drafter checkpoints, read into ours. No torch.

Each family has a file; :mod:`~hyflash_bench.spec.formats.recognise` tells which one a folder is of.
"""
