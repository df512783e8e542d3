"""The page of a run: curves, warnings, scores of its best checkpoint, captions with attention, and its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from showtell.captions import Explanation
from showtell.files import write_text
from showtell.reports.base import resource
from showtell.reports.curves import Points, chart
from showtell.reports.explanation_page import render_explanations
from showtell.reports.run import Run, ScoreCard, damage_refused

NO_TERM = ("step", "epoch", "learning_rate", "loss", "gradient_norm")  # of a line of the log; the rest are terms


def write_run_page(
    file: Path,
    run: Run,
    card: ScoreCard | None,
    explanations: Sequence[Explanation],
    note: str | None = None,
    verdict: Sequence[str] = (),
) -> None:
    """Write the page, whole or not at all; `note` says why there are no scores (`card`) and explanations."""
    signatures: dict[str, list[str]] = {}  # the names of the numbers by signature
    for name, signature in card.report.signatures.items() if card is not None else ():
        signatures.setdefault(signature, []).append(name)
    with damage_refused(run.folder):
        facts, charts = _facts(run), draw_curves(run)
    content = render_explanations(
        "run_page.html.j2",
        explanations,
        f"Run {run.title}",
        style=resource("run_page.css"),
        run=run,
        facts=facts,
        charts=charts,
        card=card,
        signatures=signatures,
        note=note,
        verdict=verdict,
    )
    write_text(file, content)


def _facts(run: Run) -> dict[str, str]:
    recipe, training = run.recipe, run.recipe["training"]
    model, encoder = recipe["model"], recipe["encoder"]
    rest = ", ".join(f"{key} {model[key]}" for key in ("attention", "cell", "hidden_size") if key in model)
    facts = {
        "state": run.progress,
        "best": run.best,
        "model": f"{model['name']}{f' ({rest})' if rest else ''}",
        "encoder": f"{encoder['name']}, {'trained' if encoder['trained'] else 'frozen'}",
        "objective": recipe["objective"]["name"],
        "data": str(recipe["data"]["path"]),
        "training": f"{training['optimizer']['name']}, learning rate {training['learning_rate']:g} "
        f"({training['schedule']}), batches of {training['batch_size']} images, seed {training['seed']}",
        "started from": training.get("start_from"),
    }
    return {name: fact for name, fact in facts.items() if fact}


def draw_curves(run: Run) -> list[Markup]:
    """Charts of the loss, each validation score, each further term, and the learning rate."""
    steps = [line for line in run.log if "loss" in line]
    scores = list(dict.fromkeys(name for line in run.validations for name in line["validation"] if name != "loss"))
    is_likelihood = all("words" in line for line in steps)
    has_other_terms = any(line.get("words") != line["loss"] for line in steps)
    shown = (*NO_TERM, "words") if is_likelihood else NO_TERM
    terms = dict.fromkeys(name for line in steps for name in line if name not in shown)

    def trained(name: str) -> Points:
        return [(line["step"], line[name]) for line in steps if isinstance(line.get(name), float | int)]

    def validated(name: str) -> Points:
        return [(line["step"], line["validation"][name]) for line in run.validations if name in line["validation"]]

    if is_likelihood:
        charts = {"cross-entropy per word": {"training": trained("words"), "validation": validated("loss")}}
        charts |= {"training loss, all terms": {"": trained("loss")}} if has_other_terms else {}
    else:  # the loss of a reward is no likelihood, but that of validation is
        charts = {"training loss, not a likelihood": {"": trained("loss")}}
        charts |= {"validation loss, cross-entropy per word": {"": validated("loss")}}
    charts |= {f"validation {name}": {"": validated(name)} for name in scores}
    charts |= {name.replace("_", " "): {"": trained(name)} for name in (*terms, "gradient_norm", "learning_rate")}
    return [chart(title, lines) for title, lines in charts.items()]
