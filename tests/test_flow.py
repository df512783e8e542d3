"""Imports point one way: each part of the package with the parts that it may import, and no circles."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "showtell"
# Each package and each module at the root, by its name, with all that it may import.
MAY_IMPORT: dict[str, str] = {
    # tools
    "errors": "",
    "cores": "",
    "config": "errors",
    "types": "",
    "counter_rng": "",
    "cuda_graphs": "types",
    "progress": "errors",
    "files": "errors",
    "processes": "errors files",
    "torch_weights": "errors files",
    "registry": "config errors",
    # data, models, captions, scores
    "images": "config cores errors files types",
    "text": "errors",
    "datasets": "config cores errors files images processes progress registry text",
    "scenes": "cores datasets errors files processes",
    "features": "config datasets errors files hub images processes registry text torch_weights types",
    "hub": "errors files",
    "models": "config counter_rng cuda_graphs errors files registry text types",
    "decoding_config": "config errors registry text",
    "decoding": "counter_rng cuda_graphs decoding_config errors models registry text types",
    "checkpoint": "config decoding errors features files hub models text torch_weights",
    "captions": "errors text",
    "confidence": "captions decoding_config errors files",
    "captioners": "captions checkpoint confidence config counter_rng decoding decoding_config errors features files "
    "hub images models text types",
    "scores": "config datasets errors features files hub images progress registry scenes text torch_weights",
    "importing": "checkpoint config decoding errors features files hub models text torch_weights",
    "evaluation": "captioners captions confidence datasets decoding errors features images scores",
    "sidecars": "captions datasets errors files images text",
    # what is made of captioners and captions
    "explanations": "captioners captions datasets decoding errors features files images models scores text types",
    "grounding": "captioners captions datasets decoding errors explanations features images models scenes scores text "
    "types",
    "reports": "captioners captions config datasets decoding errors evaluation explanations "
    "features files hub images recipes scenes scores text",
    "serving": "captioners captions confidence config datasets decoding_config errors explanations "
    "files images reports sidecars text",
    # training
    "recipes": "errors",
    "objectives": "config counter_rng cuda_graphs decoding errors models registry scores text types",
    "training": "captioners captions checkpoint confidence config cores counter_rng cuda_graphs datasets decoding "
    "errors evaluation explanations features files grounding hub images models objectives processes progress recipes "
    "scores text types",
    "quickstart": "captioners captions cores datasets errors evaluation explanations hub models processes progress "
    "reports scenes scores training",
    # for the tests of others
    "testing": "counter_rng decoding models objectives types",
    # the command line
    "cli": "captioners captions checkpoint confidence config cores counter_rng datasets decoding "
    "decoding_config errors evaluation explanations features files grounding hub images "
    "importing processes progress quickstart recipes reports scenes scores serving sidecars text training",
    "__main__": "cli",
    "__init__": "captioners captions datasets decoding_config errors evaluation explanations hub models recipes scores "
    "text training types",
}
# Methods for convenience that import what comes after them, and only when they are called.
SHORTCUTS = {("captions.py", "reports"): "Explanation.figure, and what a notebook shows"}
# The two circles: `Captioner.from_pretrained` opens its own subclasses, and an `Explanation` shows itself.
LAZY = ("captioners", "captions")
# What a captioner runs without.
NOT_NEEDED_TO_CAPTION = "cli explanations grounding importing objectives quickstart reports serving training"


def part_of(file: Path) -> str:
    """The package or the module at the root that a file belongs to."""
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    """The parts of showtell that some code imports."""
    parts = set()
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.ImportFrom) and node.module == "showtell":
            names = [f"showtell.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        parts |= {name.split(".")[1] for name in names if name.startswith("showtell.")}
    return parts - {"__version__"}


def imports_when_loaded(tree: ast.Module) -> set[str]:
    """The parts that are imported with the code itself, not when one of its functions is called."""
    statements = [node for node in tree.body if not ast.unparse(node).startswith("if TYPE_CHECKING:")]
    return set().union(*[imports(node) for node in statements if not isinstance(node, ast.FunctionDef | ast.ClassDef)])


def test_every_part_is_in_the_table():
    parts = {part_of(path) for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts == MAY_IMPORT.keys()


def test_a_part_imports_only_what_it_may():
    for file in SOURCE.rglob("*.py"):
        name, part = file.relative_to(SOURCE).as_posix(), part_of(file)
        tree = ast.parse(file.read_text(encoding="utf-8"))
        allowed = {part, *MAY_IMPORT[part].split()}
        assert imports_when_loaded(tree) <= allowed, name
        assert imports(tree) <= allowed | {target for source, target in SHORTCUTS if source == name}, name


def test_there_are_no_circles():
    order = list(TopologicalSorter({part: allowed.split() for part, allowed in MAY_IMPORT.items()}).static_order())
    assert set(order) == MAY_IMPORT.keys()


def modules_of(tree: ast.Module, known: Collection[str]) -> set[str]:
    """The modules of showtell that one imports: when it is loaded, when a function is called, or for types."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
    return names & known


def test_no_module_imports_itself_by_a_circle_be_it_lazily_or_for_types():
    files = {
        ".".join(("showtell", *file.relative_to(SOURCE).with_suffix("").parts)): file for file in SOURCE.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): file for name, file in files.items() if name != "showtell.__init__"}
    graph = {
        name: modules_of(ast.parse(file.read_text(encoding="utf-8")), files.keys()) - {name}
        for name, file in files.items()
        if name.split(".")[1] not in LAZY
    }
    list(TopologicalSorter(graph).static_order())  # raises a CycleError, which names the modules


LIGHT = """
import os, sys
before = dict(os.environ)
import showtell
assert dict(os.environ) == before and "torch" not in sys.modules
parts = sys.argv[1:]
sys.modules.update(dict.fromkeys(parts))  # cannot be imported
captioner = showtell.Captioner.from_pretrained("small", "cpu")
print(captioner.caption(showtell.PHOTOS[0])[0])
slow = "torch._dynamo", "timm.models.beit", "timm.data.loader", "torchvision.models.resnet"  # the first as torch itself
assert not {*slow} & {*sys.modules}
import timm, torchvision  # whole for whoever asks
assert isinstance(captioner.encoder.backbone, timm.models.efficientnet.EfficientNet)
assert timm.is_model("beit_base_patch16_224") and timm.data.create_transform and torchvision.models.resnet18
for part in parts:
    del sys.modules[part]
captioner.explain(showtell.PHOTOS[0])
from showtell import evaluate, load_recipe, train
load_recipe("scenes/sat_soft")
print([name for name in sys.modules if "hugging_face" in name or name == "transformers"])
"""


def test_captioning_works_without_the_parts_and_libraries_that_it_does_not_need(tmp_path):
    """From any folder; importing showtell changes no variable, and classic models do without transformers."""
    parts = [f"showtell.{part}" for part in NOT_NEEDED_TO_CAPTION.split()]
    command = [sys.executable, "-c", LIGHT, *parts]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("a man is holding a camera on a tripod\n[]\n", "")
