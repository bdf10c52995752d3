"""The text part of a multimodal checkpoint says what the whole model says to text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hyflash_bench.spec.target import TargetSpec
from hyflash_bench.targets.load import load_target
from tests.targets.families import VOCAB, WINDOW, make_model, random_tokens

pytestmark = pytest.mark.usefixtures("user_cache")

NUM_NEW = 12
_TEXT = {"gemma3": "gemma3", "llava": "llama", "mistral3": "mistral-full"}
_IMAGES = {
    "gemma3": {"image_token_index": VOCAB - 1, "mm_tokens_per_image": 4},
    "llava": {"image_token_index": VOCAB - 1},
    "mistral3": {"image_token_index": VOCAB - 1},
}
_CLASSES = {"gemma3": "Gemma3", "llava": "Llava", "mistral3": "Mistral3"}
_EYES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
}


def make_wrapped(kind: str) -> Any:
    """A tiny multimodal model whose text part has weights of some size."""
    text = make_model(_TEXT[kind])
    eyes = {
        "gemma3": transformers.SiglipVisionConfig,
        "llava": transformers.CLIPVisionConfig,
        "mistral3": transformers.PixtralVisionConfig,
    }[kind](**_EYES)
    config = getattr(transformers, f"{_CLASSES[kind]}Config")(
        text_config=text.config, vision_config=eyes, tie_word_embeddings=False, **_IMAGES[kind]
    )
    model = getattr(transformers, f"{_CLASSES[kind]}ForConditionalGeneration")(config).eval()
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    return model


@pytest.fixture(params=_TEXT)
def model(request: pytest.FixtureRequest) -> Any:
    return make_wrapped(request.param)


def test_the_text_part_answers_as_the_whole(model: Any, tiny_target: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    for file in tiny_target.glob("tokenizer*"):
        shutil.copy(file, tmp_path)
    prompt = random_tokens(2 * WINDOW)
    settings = {"do_sample": False, "min_new_tokens": NUM_NEW, "max_new_tokens": NUM_NEW}
    with torch.inference_mode():
        expected = model.generate(prompt[None], attention_mask=torch.ones(1, len(prompt)), **settings)
        logits = model(prompt[None]).logits[0, -1]

    target = load_target(TargetSpec(target=str(tmp_path)))
    cache = target.new_cache(len(prompt) + NUM_NEW)
    said = target.prefill(prompt, cache).logits[-1]
    reply = []
    for _ in range(NUM_NEW):
        ranked = said.clone()
        ranked[list(target.info.eos_token_ids)] = -torch.inf  # as generate() does below its minimum
        reply.append(int(ranked.argmax()))
        said = target.forward(torch.tensor(reply[-1:]), cache).logits[-1]

    assert torch.allclose(target.prefill(prompt, target.new_cache(99)).logits[-1], logits, atol=1e-4)
    assert reply == expected[0, len(prompt) :].tolist()
    assert target.info.num_parameters == sum(
        value.numel()
        for value in {
            **dict(model.model.language_model.named_parameters()),
            **dict(model.lm_head.named_parameters()),
        }.values()
    )
