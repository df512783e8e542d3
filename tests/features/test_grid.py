import pytest
import timm
import torch
import torchvision
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from showtell.checkpoint import load_checkpoint
from showtell.errors import RecipeError, WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.hub import find_checkpoint
from showtell.types import PreparedBatch
from tests.features.resnet_by_hand import enliven

IMAGES = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def resnet(**settings):
    fresh = {"name": "resnet18", "weights": "random", "image_size": 64, "seed": 0}
    return build_encoder(encoder_config(fresh | settings))


def test_the_position_embedding_can_begin_as_a_ramp():
    """Of equal steps from row to row and column to column, as steep as was asked for; centred; no part of settings."""
    settings = {"name": "small_cnn", "image_size": 48, "widths": [8, 16, 600], "seed": 3}
    ramp = build_encoder(encoder_config({**settings, "position_slope": 0.5})).position_embedding.detach()
    for axis in (1, 2):
        assert ramp.diff(n=2, dim=axis).abs().max() < 1e-6
        steps = ramp.diff(dim=axis).flatten(1)
        assert torch.allclose(steps, steps[:, :1].expand_as(steps), atol=1e-6)
        assert float(steps[:, 0].std()) == pytest.approx(0.5 * 2 / 6, rel=0.1)  # six cells between -1 and 1
    assert ramp.mean((1, 2)).abs().max() < 1e-6
    slopes = torch.stack((ramp[:, 0, 5] - ramp[:, 0, 0], ramp[:, 5, 0] - ramp[:, 0, 0]))
    assert abs(float(torch.corrcoef(slopes)[0, 1])) < 0.15  # rows and columns can be told apart

    noise = build_encoder(encoder_config(settings))
    assert float(noise.position_embedding.detach().std()) == pytest.approx(0.02, rel=0.05)
    sloped = encoder_config({**settings, "position_slope": 0.5})
    assert sloped.feature_settings() == noise.config.feature_settings()  # stores and checkpoints fit with and without


def test_a_backbone_of_timm_takes_the_weights_of_a_run():
    checkpoint = find_checkpoint("small")
    whole = load_checkpoint(checkpoint).encoder
    config = whole.config.model_copy(update={"weights": str(checkpoint / "model.safetensors")})
    assert build_encoder(config).fingerprint() == whole.fingerprint()


def test_small_cnn_takes_the_weights_of_a_run(tiny_checkpoint):
    whole = load_checkpoint(tiny_checkpoint).encoder
    file = tiny_checkpoint / "model.safetensors"
    settings = {"name": "small_cnn", "image_size": 48, "widths": [8, 16], "trained": False, "weights": str(file)}
    batch = PreparedBatch.of(IMAGES[..., :48, :48])
    assert torch.equal(build_encoder(encoder_config(settings))(batch).vectors, whole(batch).vectors)
    with torch.no_grad():  # an earlier stage, and the last without positions, as the whole encoder has them on its way
        pixels = whole.preprocessing.normalise(IMAGES[..., :48, :48])
        maps = (whole.layers[:3](pixels), whole.layers(pixels))
    for stage, expected in zip((-2, -1), maps, strict=True):
        bare = build_encoder(encoder_config(settings | {"stage": stage, "position_embedding": False}))
        torch.testing.assert_close(bare(batch).vectors, expected.flatten(2).transpose(1, 2))
        assert bare.fingerprint() != whole.fingerprint()
    for change, error, message in (
        ({"stage": 2}, ValidationError, "stage=2: widths make 2 maps, numbered 0 to 1"),
        ({"precision": "bf16"}, ValidationError, "extra"),
        ({"widths": [8, 12]}, WeightsError, r"small_cnn.*layers\.3\.weight is \(16, 8, 3, 3\) and should be \(12, 8, "),
        ({"widths": [8, 16, 24]}, WeightsError, r"safetensors are not those of small_cnn.* are missing: layers\.9\."),
    ):
        with pytest.raises(error, match=message):
            build_encoder(encoder_config(settings | change))


def test_a_frozen_encoder_stays_in_eval_mode_and_has_no_gradients():
    encoder = resnet(trained=False)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    assert not encoder(PreparedBatch.of(IMAGES)).vectors.requires_grad
    assert not any(module.training for module in encoder.modules())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


# ---- grids of the papers, against torchvision


def test_resnet_is_that_of_torchvision_cut_behind_its_stage(tmp_path):
    """With statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    enliven(model.state_dict())
    torch.save(model.state_dict(), tmp_path / "resnet18-00000000.pth")
    for settings, layers, shape in (
        ({"stage": 3}, 3, (2, 16, 256)),  # HACap: 14x14x1024 of ResNet-101 at 224 pixels
        ({"grid": 14}, 4, (2, 196, 512)),  # Gu et al. 2018 and Boustany and Sarfati: 14x14x2048 at any size
        ({"grid": 1}, 4, (2, 1, 512)),  # Boustany and Sarfati: the mean
    ):
        encoder = resnet(weights=str(tmp_path / "resnet18-00000000.pth"), trained=False, **settings)
        stages = (model.layer1, model.layer2, model.layer3, model.layer4)[:layers]
        with torch.no_grad():
            expected = model.maxpool(model.relu(model.bn1(model.conv1(encoder.preprocessing.normalise(IMAGES)))))
            expected = nn.Sequential(*stages)(expected)
        if "grid" in settings:
            expected = F.adaptive_avg_pool2d(expected, settings["grid"])
        vectors = encoder(PreparedBatch.of(IMAGES)).vectors
        assert vectors.shape == shape
        torch.testing.assert_close(vectors, expected.flatten(2).transpose(1, 2), atol=1e-4, rtol=1e-4)
        names = {name for name, _ in encoder.backbone.named_parameters()}
        cut = ("fc.", *(f"layer{number}." for number in range(layers + 1, 5)))
        assert names == {name for name, _ in model.named_parameters() if not name.startswith(cut)}


def test_vgg19_is_that_of_torchvision_up_to_the_relu_of_conv5_4(tmp_path):
    """Xu et al. 2015: 14x14x512 at 224 pixels, "before max pooling"; its release takes it after the ReLU."""
    torch.manual_seed(0)
    features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["E"])
    tensors = {f"features.{name}": value for name, value in features.state_dict().items()}
    tensors |= {f"classifier.{layer}.{kind}": torch.ones(1) for layer in (0, 3, 6) for kind in ("weight", "bias")}
    torch.save(tensors, tmp_path / "vgg19-00000000.pth")
    settings = {"name": "vgg19.tv_in1k", "weights": str(tmp_path / "vgg19-00000000.pth"), "stage": 4, "trained": False}
    encoder = build_encoder(encoder_config(settings))
    assert encoder.preprocessing.image_size == 224
    with torch.no_grad():
        expected = features[:36](encoder.preprocessing.normalise(IMAGES))
    vectors = encoder(PreparedBatch.of(IMAGES)).vectors
    assert vectors.shape == (2, 16, 512)
    assert bool((vectors >= 0).all())
    torch.testing.assert_close(vectors, expected.flatten(2).transpose(1, 2), atol=1e-5, rtol=1e-4)
    assert encoder.stride == 16  # so 14 cells of each side at 224 pixels


# ---- every kind of backbone, against timm's own forward pass


SIZES = {
    **dict.fromkeys(("convnext_atto", "vit_tiny_patch16_224", "vit_xsmall_patch16_clip_224", "efficientnet_b0"), 64),
    "xcit_nano_12_p8_224": 64,
    "swin_tiny_patch4_window7_224": 224,  # its maps lie the other way round: channels last
    "vit_small_patch14_reg4_dinov2": 56,  # with register tokens
    "deit_tiny_distilled_patch16_224": 64,  # with two class tokens
}


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_the_last_stage_is_what_timm_itself_computes(name, size):
    encoder = resnet(name=name, image_size=size, trained=False, seed=1)
    torch.manual_seed(1)
    options = {"img_size": size} if hasattr(encoder.backbone, "patch_embed") else {}
    plain = timm.create_model(name, num_classes=0, **options).eval()
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    with torch.no_grad():
        pixels = encoder.preprocessing.normalise(images)
        if name == "efficientnet_b0":  # timm's forward_features has the head's convolution too
            expected = plain.forward_intermediates(pixels, intermediates_only=True)[-1]
        else:
            expected = plain.forward_features(pixels)
    if expected.ndim == 3:
        expected = expected[:, plain.num_prefix_tokens :]
    else:
        expected = expected.flatten(1, 2) if "swin" in name else expected.flatten(2).transpose(1, 2)
    vectors = encoder(PreparedBatch.of(images)).vectors
    assert vectors.shape[-1] == encoder.feature_size
    torch.testing.assert_close(vectors, expected, atol=1e-4, rtol=1e-4)


def test_bf16_is_near_and_part_of_settings_and_fingerprint():
    encoder, half = (resnet(trained=False, precision=precision) for precision in ("fp32", "bf16"))
    batch = PreparedBatch.of(IMAGES)
    exact, near, fingerprint = encoder(batch).vectors, half(batch).vectors, encoder.fingerprint()
    assert near.dtype == torch.float32 and 0 < float((near - exact).norm() / exact.norm()) < 0.03
    encoder.compute_in("bf16")
    assert (encoder.precision, encoder.fingerprint()) == ("bf16", half.fingerprint()) != ("bf16", fingerprint)
    assert torch.equal(encoder(batch).vectors, near)
    encoder.compute_in("fp32")
    assert encoder.fingerprint() == fingerprint and torch.equal(encoder(batch).vectors, exact)


# ---- weights


def test_pretrained_weights_come_from_the_cache_of_the_hub(hub):
    torch.manual_seed(5)
    tensors = timm.create_model("resnet18").state_dict()  # as on the hub: with the classifier
    cached, commit = hub / "models--timm--resnet18.a1_in1k", "0123456789abcdef0123456789abcdef01234567"
    (cached / "snapshots" / commit).mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    save_file(tensors, cached / "snapshots" / commit / "model.safetensors")
    for name in ("resnet18", "resnet18.a1_in1k"):
        encoder = build_encoder(encoder_config({"name": name, "weights": "pretrained", "image_size": 64}))
        kept = encoder.backbone.state_dict()
        assert len(kept) == 120
        assert all(torch.equal(value, tensors[key]) for key, value in kept.items())


def test_weights_that_cannot_be_had_are_named(hub, tmp_path):
    torch.save(timm.create_model("resnet34").state_dict(), tmp_path / "w.pth")
    another = r"w\.pth are not those of resnet18: 96 are unknown: layer1\.2\.conv1\.weight, .* and 93 more"
    for name, weights, error, message in (
        ("resnet34", "pretrained", WeightsError, r"timm/resnet34\.a1_in1k"),
        ("legacy_seresnet18", "pretrained", WeightsError, r"are not on the Hugging Face hub: fetch https://github"),
        ("mixer_s32_224", "pretrained", RecipeError, r"timm has no pretrained weights of mixer_s32_224: set encoder"),
        ("resnet101.tv_in1", "random", RecipeError, 'no weights "tv_in1" of resnet101; did you mean "tv_in1k'),
        ("resnet", "random", RecipeError, 'There is no encoder "resnet"'),
        ("resnet18", "pretraned", WeightsError, "^The weights pretraned: this does not exist; give "),
        ("resnet18", str(tmp_path / "w.pth"), WeightsError, another),
    ):
        with pytest.raises(error, match=message):
            build_encoder(encoder_config({"name": name, "weights": weights}))
    build_encoder(encoder_config({"name": "resnet34"}), load_weights=False)  # as a checkpoint does


def test_random_weights_are_a_function_of_their_seed():
    def fingerprint(run: int, **settings) -> str:
        torch.manual_seed(run)
        content = {"name": "small_cnn", "image_size": 32, "widths": [4], **settings}
        return build_encoder(encoder_config(content)).fingerprint()

    assert fingerprint(1, seed=3) == fingerprint(2, seed=3) != fingerprint(1, seed=4)
    assert fingerprint(1) == fingerprint(1) != fingerprint(2)
    torch.manual_seed(9)
    expected = torch.rand(1)
    fingerprint(9, seed=3)
    assert torch.equal(torch.rand(1), expected)  # the run's own random numbers are not drawn from


# ---- fine-tuning


def test_chosen_modules_learn_and_the_others_stay():
    encoder = resnet(trained=["layer3", "layer4"], learning_rate=0.5)
    learning = [name for name, weight in encoder.named_parameters() if weight.requires_grad]
    assert {name.split(".")[1] for name in learning} == {"layer3", "layer4"}
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    encoder(PreparedBatch.of(IMAGES)).vectors.square().mean().backward()
    ((rate, weights),) = encoder.parameter_groups()
    assert rate == 0.5
    torch.optim.SGD(weights, lr=0.1).step()
    changed = [name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])]
    assert {name.split(".")[1] for name in changed} == {"layer3", "layer4"}  # statistics of batch norms included
    assert all(weight.grad is None for name, weight in encoder.named_parameters() if not weight.requires_grad)
    assert not encoder.eval().backbone.layer4.training
    again = encoder_config(encoder.config.model_dump(mode="json"))  # as in a checkpoint
    assert again == encoder.config and resnet(trained=False).parameter_groups() == []


def test_sizes_and_stages_that_do_not_fit_are_refused():
    for settings, message in (
        ({"trained": ["layer5"]}, r"encoder\.trained: resnet18, cut behind its stage -1, has no module layer5 with we"),
        ({"trained": ["layer4"], "stage": 3}, "stage 3, has no module layer4 with weights; did you mean .lay"),
        ({"stage": 9}, r"encoder\.stage=9: resnet18 has 5 feature maps, numbered 0 to 4 "),
        ({"name": "vit_tiny_patch16_224", "image_size": 60}, r"image_size=60: .* patches of 16 pixels, .* 48 or 64\."),
    ):
        with pytest.raises(RecipeError, match=message):
            resnet(**settings)
    late = resnet(name="levit_128s", image_size=200)  # which is seen when the first picture comes
    with pytest.raises(RecipeError, match=r"levit_128s cannot take pictures of this size \(The size of tensor a"):
        late(PreparedBatch.of(torch.zeros(1, 3, 200, 200, dtype=torch.uint8)))


def test_batch_norms_of_trained_modules_can_keep_their_statistics():
    encoder = resnet(trained=["layer4"], frozen_batch_norm=True).train()
    before = {name: value.clone() for name, value in encoder.named_buffers()}
    encoder(PreparedBatch.of(IMAGES))
    assert all(torch.equal(value, before[name]) for name, value in encoder.named_buffers())
    block = encoder.backbone.layer4[0]
    assert block.conv1.training and block.bn1.weight.requires_grad and not block.bn1.training
