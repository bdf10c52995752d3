"""Suites: what drafters are measured on. Imports neither torch nor transformers."""

from hyflash_bench.suites.catalog import list_suites, load_suite
from hyflash_bench.suites.chat import ChatTokenizer
from hyflash_bench.suites.conversation import Conversation, Expected, Item, UserTurn
from hyflash_bench.suites.datafiles.choice import DataFiles
from hyflash_bench.suites.scoring import score
from hyflash_bench.suites.suite import BUILDER_VERSION, Suite
from hyflash_bench.suites.validation import Finding, validate_suite

__all__ = [
    "BUILDER_VERSION",
    "ChatTokenizer",
    "Conversation",
    "DataFiles",
    "Expected",
    "Finding",
    "Item",
    "Suite",
    "UserTurn",
    "list_suites",
    "load_suite",
    "score",
    "validate_suite",
]
