"""The papers' decoders and objectives on scenes, on the features of one encoder.

    python benchmarks/old_papers.py --out runs/old-papers [--rows A,B] [--name NAME] [KEY=VALUE ...]

`study.py` says how rows are trained and held against each other; its command resumes, and `--summary-only` scores the
runs that are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from study import ENCODER_ROW, Row, command

REFERENCE = "sat_soft"  # what every row is held against
INDEPENDENT = ("model.attention=independent",)
TEXT = ("model.discriminator_image=none",)
WORKER = ("model.goals=false", "objective.name=cross_entropy")
IMAGE = ("model.discriminator_image=attended",)
GENTLE = 0.0003  # the rate of policy gradients from a discriminator; at 0.001 they do harm (docs/hacap.md)
# The rows show what adversarial epochs do, with none of pre-training between them.
BARE = ("objective.interleave=0", "objective.worker_weight=0.3")
GOALS_ALONE = ("objective.intrinsic_weight=1", "objective.external_weight=0")
GRU = ("model.cell=gru", "model.image=state")
ROWS = (
    Row("nic_gru", "nic, GRU, image as first state (Boustany and Sarfati)", "nic_ensae"),
    Row(
        "nic_rnn", "nic, plain RNN, image as first state (Boustany and Sarfati)", "nic_ensae",
        changes=("model.cell=rnn",),
    ),
    Row("nic_lstm", "nic, LSTM, image as first input", "nic_lstm"),
    Row("nic_lstm3", "nic, LSTM of 3 layers", "nic_lstm3"),
    Row("sat_soft", "sat, soft attention", "sat_soft"),
    Row("sat_hard", "sat, hard attention", "sat_hard"),
    Row("updown", "updown, grid", "updown"),
    Row("sat_soft_before", "sat soft, the stage before (12 x 12, no places)", "sat_soft", "before"),
    Row("sat_soft_no_places", "sat soft, last stage without places", "sat_soft", "last_without_places"),
    ENCODER_ROW,
    Row("updown_joint", "updown, encoder learns too", "updown", None),
    Row("stack", "stack, stacked attention", "stack"),
    Row("stack_independent", "stack, independent attention", "stack", changes=INDEPENDENT),
    Row("nic_sc", "nic GRU, then self-critical", "nic_self_critical", start="nic_gru", changes=GRU),
    Row("sat_soft_more", "sat soft, then more cross-entropy", "sat_soft", start="sat_soft"),
    Row("sat_soft_sc", "sat soft, then self-critical", "sat_soft_self_critical", start="sat_soft"),
    Row("updown_sc", "updown grid, then self-critical", "updown_self_critical", start="updown"),
    Row("stack_sc", "stack, then self-critical on the last stage", "stack_self_critical", start="stack"),
    Row(
        "stack_c2f", "stack, then coarse-to-fine", "stack_coarse_to_fine", start="stack", tried_by="stack_sc",
    ),
    Row(
        "stack_independent_sc", "stack independent, then self-critical on the last stage", "stack_self_critical",
        start="stack_independent", changes=INDEPENDENT, tried_by="stack_sc",
    ),
    Row(
        "stack_independent_c2f", "stack independent, then coarse-to-fine", "stack_coarse_to_fine",
        start="stack_independent", changes=INDEPENDENT, tried_by="stack_sc",
    ),
    Row("hacap_worker", "hacap, worker alone", "hacap", changes=WORKER, tried_by="hacap"),
    Row("hacap", "hacap, pre-trained", "hacap", changes=TEXT),
    Row(
        "hacap_unnormalised", "hacap, goals of any length", "hacap",
        changes=(*TEXT, "model.normalise_goals=false"), tried_by="hacap",
    ),
    Row(
        "hacap_no_highway", "hacap without highway", "hacap",
        changes=(*TEXT, "model.highway=false"), tried_by="hacap",
    ),
    Row("hacap_image", "hacap, discriminator sees the image", "hacap", changes=IMAGE, tried_by="hacap"),
    Row(
        "hacap_image_more", "hacap image, then more pre-training", "hacap",
        start="hacap_image", changes=IMAGE, rate=GENTLE,
    ),
    Row(
        "hacap_adversarial", "hacap, then rewarded for goals, beside the likelihood", "hacap_adversarial",
        start="hacap", changes=(*BARE, *TEXT, *GOALS_ALONE), rate=GENTLE,
    ),
    Row(
        "hacap_image_goals", "hacap image, then rewarded for goals, beside the likelihood", "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, *GOALS_ALONE), rate=GENTLE,
    ),
    Row(
        "hacap_image_adversarial", "hacap image, then rewarded by the discriminator, beside the likelihood",
        "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, "objective.intrinsic_weight=0"), rate=GENTLE,
    ),
    Row(
        "hacap_image_lightly", "hacap image, then both rewards, weighed as in the recipe", "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, "objective.worker_weight=0.1"), rate=GENTLE,
    ),
)  # fmt: skip
# What the papers claim, or what one asks of them: the first of each pair is better than the second.
PAIRS = (
    ("nic_gru", "nic_rnn"),
    ("sat_soft_before", "sat_soft_no_places"),
    ("updown_joint", "sat_soft_joint"),
    ("nic_sc", "nic_gru"),
    ("sat_soft_sc", "sat_soft"),
    ("sat_soft_sc", "sat_soft_more"),
    ("updown_sc", "updown"),
    ("stack_sc", "stack"),
    ("stack_c2f", "stack"),
    ("stack_independent_sc", "stack_independent"),
    ("stack_independent_c2f", "stack_independent"),
    ("stack_c2f", "stack_sc"),
    ("stack_independent_c2f", "stack_independent_sc"),
    ("stack", "sat_soft"),
    ("stack", "updown"),
    ("stack", "nic_lstm3"),
    ("stack", "stack_independent"),
    ("stack_c2f", "stack_independent_c2f"),
    ("stack_sc", "sat_soft_sc"),
    ("stack_sc", "updown_sc"),
    ("hacap", "hacap_worker"),
    ("hacap", "hacap_unnormalised"),
    ("hacap", "hacap_no_highway"),
    ("hacap_image", "hacap"),
    ("hacap_adversarial", "hacap"),
    ("hacap_image_more", "hacap_image"),
    ("hacap_image_adversarial", "hacap_image_more"),
    ("hacap_image_lightly", "hacap_image_more"),
    ("hacap_image_goals", "hacap_image_more"),
    ("hacap_image_adversarial", "hacap_image_goals"),
    ("hacap_worker", "sat_soft"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write what came out."""
    against = [(row.name, REFERENCE) for row in ROWS if row.name != REFERENCE]
    return command(__doc__, ROWS, pairs=[*against, *PAIRS], name="models", arguments=arguments)


if __name__ == "__main__":
    raise SystemExit(main())
