"""Drafters on paper: bytes held and cost of a step as functions of context length. No torch."""

from hyflash_bench.memory.forms.base import DrafterForm, Kind, Precision, is_exact
from hyflash_bench.memory.forms.trained import BlockForm, EagleForm, MedusaForm
from hyflash_bench.memory.forms.untrained import PlainForm, RecentForm, SmallModelForm

__all__ = [
    "BlockForm",
    "DrafterForm",
    "EagleForm",
    "Kind",
    "MedusaForm",
    "PlainForm",
    "Precision",
    "RecentForm",
    "SmallModelForm",
    "is_exact",
]
