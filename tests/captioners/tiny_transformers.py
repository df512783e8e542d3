"""Tiny captioning models of transformers with random weights, saved as a user has them: `build(name, folder)`.

A weight depends on its name in the file and its shape alone, so the same model comes out of every version.
"""

import string
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from showtell.hub import quiet

SENTENCES = (
    "a red circle is above a small blue star", "a photo of a green square", "two yellow triangles near a black dog",
    "describe this photo in one short sentence", "a man rides a white horse on the beach", "caption en user assistant",
    "what does the image describe", "the cat sits under an orange umbrella", "nothing but the grey sky is to be seen",
)  # fmt: skip
WORDS = tuple(dict.fromkeys(" ".join(SENTENCES).split()))
LETTERS = string.ascii_lowercase
SIDE = 32  # pixels that the models look at


def photo(seed: int, width: int = SIDE, height: int = SIDE) -> Image.Image:
    """A photo of large coloured blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((width, height), Image.Resampling.NEAREST)


def build(name: str, folder: Path, **changes: Any) -> Path:
    """Save one of `BUILDERS` with its processor in a folder; changes are arguments of that builder."""
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(0)
        model, parts = BUILDERS[name](**changes)
        model.save_pretrained(folder)
        for part in parts:
            part.save_pretrained(folder)
    spread_weights(folder / "model.safetensors")
    return folder


def spread_weights(file: Path) -> None:
    """Weights far enough from 0 that captions differ from photo to photo."""
    tensors = load_file(file)
    if "model.language_model.shared.weight" in tensors:
        tensors.pop("lm_head.weight", None)  # is tied to that; not all versions leave it out
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and "norm" not in name.lower() and ".ln_" not in name:
            generator = torch.Generator().manual_seed(zlib.crc32(name.replace("vision_model.", "").encode()))
            scale = 0.1 if tensor.dim() < 2 else 1.5 / tensor[0].numel() ** 0.5
            tensors[name] = scale * torch.randn(tensor.shape, generator=generator)
    save_file(tensors, file, {"format": "pt"})


def word_pieces(special: tuple[str, ...] = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")) -> Any:
    """As BERT has them."""
    pieces = [*special, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "##s", "##ing", "##cle"]
    tokenizer = Tokenizer(models.WordPiece(_numbered(pieces), unk_token="[UNK]"))
    tokenizer.add_special_tokens([*special])
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ids = {token: tokenizer.token_to_id(token) for token in special}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip


ROLES: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def byte_pieces(
    special: tuple[str, ...], *, begin: bool = False, end: bool = False, roles: dict[str, Any] = ROLES
) -> Any:
    """As GPT-2 has them; the special tokens have the first ids."""
    merges = list(dict.fromkeys((f"Ġ{word}"[:end], word[end - 1]) for word in WORDS for end in range(1, len(word) + 1)))
    pieces = [*special, *string.ascii_letters, *"ĠĊ:,.", *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(_numbered(pieces), merges))
    tokenizer.add_special_tokens([*special])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if begin or end:
        first, last = roles.get("bos_token"), roles.get("eos_token")
        single = f"{first if begin else ''} $A {last if end else ''}".strip()
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[(token, tokenizer.token_to_id(token)) for token in {first, last} - {None}]
        )
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def _numbered(pieces: list[str]) -> dict[str, int]:
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


VISION = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": SIDE,
    "patch_size": 8,
}  # fmt: skip
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZE = {"height": SIDE, "width": SIDE}
MEAN = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
Built = tuple[Any, tuple[Any, ...]]


def blip(patch_size: int = 8) -> Built:
    """BLIP: a vision transformer and a text decoder with cross-attention."""
    tokenizer = word_pieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DEC]"))
    config = hf.BlipConfig(
        vision_config={**VISION, "patch_size": patch_size},
        text_config={
            **TEXT, "encoder_hidden_size": 32, "projection_dim": 32, "vocab_size": len(tokenizer),
            "max_position_embeddings": 64, "bos_token_id": 5, "sep_token_id": 3, "eos_token_id": 2, "pad_token_id": 0,
            "bos": None,
        },
        projection_dim=32, image_text_hidden_size=32,
    )  # fmt: skip
    processor = hf.BlipProcessor(hf.BlipImageProcessor(size=SIZE, **MEAN), tokenizer)
    return hf.BlipForConditionalGeneration(config), (processor,)


def blip_2(language: str = "opt") -> Built:
    """BLIP-2: a vision transformer, a Q-Former, and OPT or T5."""
    if language == "opt":
        roles = {**dict.fromkeys(ROLES, "</s>"), "pad_token": "<pad>"}
        tokenizer = byte_pieces(("<s>", "<pad>", "</s>", "<unk>", "<image>"), begin=True, roles=roles)
        end = tokenizer.convert_tokens_to_ids("Ċ")
        text = hf.OPTConfig(
            vocab_size=len(tokenizer), hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=128, word_embed_proj_dim=32, bos_token_id=2, eos_token_id=end, pad_token_id=1,
        )  # fmt: skip
    else:
        roles = {role: token for role, token in ROLES.items() if role != "bos_token"}
        tokenizer = byte_pieces(("<pad>", "</s>", "<unk>", "<image>"), end=True, roles=roles)
        text = hf.T5Config(
            vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, bos_token_id=1,
            eos_token_id=1, pad_token_id=0, decoder_start_token_id=0,
        )  # fmt: skip
    config = hf.Blip2Config(
        vision_config={**VISION, "initializer_range": 0.02},
        qformer_config={**TEXT, "encoder_hidden_size": 32, "vocab_size": len(tokenizer)},
        text_config=text.to_dict(), num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"), image_text_hidden_size=32,
    )  # fmt: skip
    processor = hf.Blip2Processor(hf.BlipImageProcessor(size=SIZE, **MEAN), tokenizer, num_query_tokens=4)
    return hf.Blip2ForConditionalGeneration(config), (processor,)


def git() -> Built:
    """GIT: one transformer over image and text."""
    tokenizer = word_pieces()
    config = hf.GitConfig(
        vision_config=VISION, **TEXT, vocab_size=len(tokenizer), max_position_embeddings=64, bos_token_id=2,
        eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    images = hf.CLIPImageProcessor(size=SIZE, crop_size=SIZE, **MEAN)
    return hf.GitForCausalLM(config), (hf.GitProcessor(images, tokenizer),)


def florence2() -> Built:
    """Florence-2: DaViT and BART, with task prompts."""
    tokenizer = byte_pieces(
        ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<image>"), begin=True, end=True,
        roles={**ROLES, "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>",
               "extra_special_tokens": {"image_token": "<image>"}},
    )  # fmt: skip
    config = hf.Florence2Config(
        vision_config={
            "depths": (1, 1), "patch_size": (7, 3), "patch_stride": (4, 2), "patch_padding": (3, 1),
            "patch_prenorm": (False, True), "embed_dim": (16, 32), "num_heads": (2, 4), "num_groups": (2, 4),
            "window_size": 4, "projection_dim": 32,
        },
        text_config={
            "model_type": "bart", "vocab_size": len(tokenizer), "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "max_position_embeddings": 128, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
            "decoder_start_token_id": 2, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
        },
        image_token_id=5, bos_token_id=0, pad_token_id=1, eos_token_id=2,
    )  # fmt: skip
    images = hf.CLIPImageProcessor(size=SIZE, do_center_crop=False, **MEAN)
    images.image_seq_length = 17
    model = hf.Florence2ForConditionalGeneration(config)
    model.generation_config = hf.GenerationConfig(
        bos_token_id=0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_bos_token_id=0,
        forced_eos_token_id=2, num_beams=3, no_repeat_ngram_size=3, early_stopping=True,
    )  # fmt: skip
    return model, (hf.Florence2Processor(images, tokenizer),)


def vision_encoder_decoder(patch_size: int = 8) -> Built:
    """A vision transformer and GPT-2 with cross-attention."""
    tokenizer = byte_pieces(("<|endoftext|>",), roles=dict.fromkeys(ROLES, "<|endoftext|>"))
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        hf.ViTConfig(**{**VISION, "patch_size": patch_size}),
        hf.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64, is_decoder=True,
                      add_cross_attention=True, bos_token_id=0, eos_token_id=0, pad_token_id=0),
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=0, bos_token_id=0,
    )  # fmt: skip
    return hf.VisionEncoderDecoderModel(config), (hf.ViTImageProcessor(size=SIZE, **MEAN), tokenizer)


LLAMA = {
    **TEXT, "num_key_value_heads": 2, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 2,
}  # fmt: skip
CHAT = (
    "{% for message in messages %}{{ message['role'] }}:{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %} {{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def llava() -> Built:
    """LLaVA: CLIP and Llama, with a chat template."""
    tokenizer = byte_pieces(("<s>", "</s>", "<pad>", "<unk>", "<image>"), begin=True)
    config = hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**VISION, projection_dim=32),
        text_config=hf.LlamaConfig(vocab_size=len(tokenizer), **LLAMA),
        image_token_id=4, image_seq_length=16, vision_feature_layer=-1,
    )  # fmt: skip
    processor = hf.LlavaProcessor(
        hf.CLIPImageProcessor(size=SIZE, crop_size=SIZE, **MEAN), tokenizer, patch_size=8,
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=CHAT.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return hf.LlavaForConditionalGeneration(config), (processor,)


def idefics3() -> Built:
    """Idefics3, of which SmolVLM is made: photos are cut into tiles, as many as their shape needs."""
    rows = tuple(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5))
    special = ("<s>", "<end_of_utterance>", "<pad>", "<unk>", "<image>", "<fake_token_around_image>", "<global-img>")
    tokenizer = byte_pieces((*special, *rows), begin=True, roles={**ROLES, "eos_token": "<end_of_utterance>"})
    config = hf.Idefics3Config(
        vision_config=VISION, text_config=hf.LlamaConfig(vocab_size=len(tokenizer), **LLAMA), image_token_id=4,
        scale_factor=2, pad_token_id=2,
    )  # fmt: skip
    images = hf.Idefics3ImageProcessor(size={"longest_edge": 2 * SIDE}, max_image_size={"longest_edge": SIDE}, **MEAN)
    processor = hf.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=CHAT.replace("IMAGE", "<image>"))
    return hf.Idefics3ForConditionalGeneration(config), (processor,)


def qwen2_vl() -> Built:
    """Qwen2-VL: as many image tokens as the photo has patches, and two tokens that end a turn."""
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
               "<|video_pad|>")  # fmt: skip
    tokenizer = byte_pieces(special, roles={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})
    config = hf.Qwen2VLConfig(
        vision_config={
            "depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 8,
            "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        text_config={
            **LLAMA, "vocab_size": len(tokenizer), "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
        },
        image_token_id=5, video_token_id=6, vision_start_token_id=3, vision_end_token_id=4,
    )  # fmt: skip
    patches = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2}
    images = hf.Qwen2VLImageProcessor(**patches, size={"shortest_edge": 16 * 16, "longest_edge": 64 * 64}, **MEAN)
    videos = hf.Qwen2VLVideoProcessor(**patches)
    template = CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    model = hf.Qwen2VLForConditionalGeneration(config)
    model.generation_config = hf.GenerationConfig(
        bos_token_id=0, pad_token_id=0, eos_token_id=[2, 0], do_sample=True, temperature=0.1, top_k=5, top_p=0.5,
        repetition_penalty=1.5,
    )  # fmt: skip
    return model, (hf.Qwen2VLProcessor(images, tokenizer, videos, chat_template=template),)


BUILDERS: dict[str, Callable[..., Built]] = {
    "blip": blip, "blip-2": blip_2, "git": git, "florence2": florence2, "llava": llava, "idefics3": idefics3,
    "vision-encoder-decoder": vision_encoder_decoder, "qwen2_vl": qwen2_vl,
}  # fmt: skip
