"""Every ingredient of the papers on and off, under one protocol.

    python benchmarks/ablations.py --out runs/ablations [--rows A,B] [--name NAME] [KEY=VALUE ...]

`study.py` says how rows are trained and held against each other; its command resumes, and `--summary-only` scores the
runs that are done. With the same --out the models that ingredients are taken from or added to are those
of `old_papers.py`, runs and all. A row has the learning rate of its base, and differs from it in what is named alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import old_papers
from study import REINFORCE, Row, command

BASES = {row.name: row for row in old_papers.ROWS}


@dataclass(frozen=True)
class Ingredient:
    """One ingredient, switched off (or on) in a base."""

    name: str  # of the row
    says: str  # what is changed
    base: str  # the row that it is held against
    changes: tuple[str, ...]  # KEY=VALUE; () where old_papers.py has the row
    papers: str  # what the papers say of it
    recipe: str | None = None  # None: the base's

    @property
    def row(self) -> Row:
        """The base with the changes; the row of old_papers.py where that has it already."""
        if self.name in BASES:
            return BASES[self.name]
        base = BASES[self.base]
        recipe, changes = self.recipe or base.recipe, (*base.changes, *self.changes)
        return Row(self.name, self.says, recipe, base.view, base.start, changes, tried_by=base.trial, rate=base.rate)


PENALTY = "Xu et al. 2015, §4.2.1: with it the model looks at every part of the image; a higher BLEU, richer captions"
PENALTIES = (  # of which base, with which weights, and what the papers say
    ("sat_soft", ("0.1", "0.33", "1", "12"), PENALTY),
    ("sat_hard", ("0.1", "0.33", "1", "12"), PENALTY),
    ("updown", ("0.33", "12"), "Xu et al.'s alone; El Baz 2020 has none"),
    ("sat_soft_joint", ("0.1", "1.2"), PENALTY),
)
SUPERVISED = "HACap §7, future work"
ALIGNED = ("objective.attention_supervision.weight=1",)
STAGES = "Gu et al. 2018 have 3 stages; their number is not studied"
INGREDIENTS = (
    *(
        Ingredient(
            f"{base}_penalty_{weight}", f"penalty, lambda {weight}", base, (f"objective.doubly_stochastic={weight}",),
            papers,
        )
        for base, weights, papers in PENALTIES
        for weight in weights
    ),
    Ingredient(
        "sat_soft_no_gate", "without the gate beta", "sat_soft", ("model.gate=false",),
        "Xu et al. 2015, §4.2.1: it lets the model weigh image against language; more weight on objects",
    ),
    Ingredient(
        "sat_soft_readout_hidden", "output layer over h alone, not deep", "sat_soft", ("model.readout=hidden",),
        "Xu et al. 2015, §3.1.2 has a deep output layer, Boustany and Sarfati, §2.2 one over h; neither compares",
    ),
    Ingredient(
        "sat_soft_plain", "attention of Boustany and Sarfati: no gate, output layer over h alone", "sat_soft",
        ("model.gate=false", "model.readout=hidden"), "Boustany and Sarfati, §2.2; not compared with ours",
    ),
    Ingredient(
        "sat_soft_no_tanh", "readout without tanh", "sat_soft", ("model.readout_tanh=false",),
        "the equation of Xu et al. 2015, §3.1.2 has none, its release has one",
    ),
    Ingredient(
        "sat_soft_init_zeros", "first state of zeros", "sat_soft", ("model.init_state=zeros",),
        "Xu et al. 2015, §3.1.2: the first state is predicted from the mean of the annotation vectors",
    ),
    Ingredient(
        "sat_soft_projected", "features through a linear layer with ReLU", "sat_soft", ("model.project_features=128",),
        "the release of Gu et al. 2018 has it; not compared",
    ),
    Ingredient(
        "sat_soft_smoothing", "label smoothing 0.1", "sat_soft", ("objective.label_smoothing=0.1",),
        "in no paper of ours; Szegedy et al. (2016)",
    ),
    Ingredient(
        "sat_soft_scheduled", "scheduled sampling, 0.05 more each epoch", "sat_soft",
        ("objective.scheduled_sampling.max_probability=0.25", "objective.scheduled_sampling.increment_epochs=1"),
        "El Baz's source trains with it before the rewards; not compared",
    ),
    Ingredient(
        "sat_soft_aligned", "supervised alignment: the words of a phrase look at its box", "sat_soft", ALIGNED,
        SUPERVISED,
    ),
    *(
        Ingredient(
            f"sat_soft_aligned_{weight}", f"supervised alignment, weight {weight}", "sat_soft",
            (f"objective.attention_supervision.weight={weight}",), SUPERVISED,
        )
        for weight in (3, 10)
    ),
    Ingredient(
        "sat_hard_no_entropy", "without the entropy term", "sat_hard", ("objective.entropy=0",),
        "Xu et al. 2015, §4.1: entropy and moving baseline reduce the variance of the estimate",
    ),
    Ingredient(
        "sat_hard_no_baseline", "without the moving baseline", "sat_hard", ("objective.baseline=none",),
        "Xu et al. 2015, §4.1: entropy and moving baseline reduce the variance of the estimate",
    ),
    Ingredient(
        "sat_hard_no_reinforce", "without the REINFORCE term", "sat_hard", ("objective.reinforce=0",),
        "Xu et al. 2015, §4.1: the gradient of the choice of regions",
    ),
    Ingredient(
        "sat_hard_no_expectation", "always a sample, never the expectation", "sat_hard",
        ("model.expectation_probability=0",),
        "the published §4.1 of Xu et al. 2015 (our copy lacks it): with it training is more robust",
    ),
    *(
        Ingredient(
            f"sat_hard_{name}", f"lambda_r {name.replace('_', ', reward per ')}", "sat_hard", REINFORCE[name],
            "Xu et al. 2015, §4.1: the gradient of the choice of regions",
        )
        for name in ("0.1_caption", "1_word", "1_caption", "10_word", "10_caption")
    ),
    Ingredient("stack_1", "1 stage in place of 3, the coarse one", "stack", ("model.fine_stages=0",), STAGES),
    Ingredient("stack_2", "2 stages in place of 3", "stack", ("model.fine_stages=1",), STAGES),
    Ingredient("stack_4", "4 stages in place of 3", "stack", ("model.fine_stages=3",), STAGES),
    Ingredient(
        "stack_last_loss", "a loss of the last stage alone", "stack", ("objective.earlier_stage_weight=0",),
        "Gu et al. 2018: intermediate supervision keeps the gradients of early stages from vanishing",
    ),
    Ingredient(
        "stack_independent", "independent attention in place of stacked", "stack", (),
        "Gu et al. 2018, Table 1: stacked is 1 point of CIDEr better (109.1 and 108.0)",
    ),
    Ingredient(
        "sat_soft_sc", "rewards", "sat_soft", (),
        "El Baz 2020, Table 1: about 7 points of CIDEr",
    ),
    Ingredient(
        "sat_soft_sc_leave_one_out", "leave-one-out baseline in place of the greedy caption", "sat_soft_sc",
        ("objective.baseline=leave_one_out",), "Anderson et al. 2018, eq. 11 has the greedy caption; not compared",
    ),
    Ingredient(
        "sat_soft_sc_beam", "captions of a beam, their mean as baseline", "sat_soft_sc",
        ("objective.sampling=beam", "objective.baseline=mean"),
        "the release of El Baz 2020 has it; Gu et al. 2018, future work: beam search in training",
    ),
    Ingredient(
        "stack_sc", "rewards, self-critical on the last stage alone", "stack", (),
        "Anderson et al. 2018, eq. 10-11; not in Gu et al. 2018",
    ),
    Ingredient(
        "stack_c2f", "rewards of every fine stage", "stack", (),
        "Gu et al. 2018, Table 2: 11 points of CIDEr (120.4 and 109.1)",
    ),
    Ingredient(
        "stack_c2f_no_previous", "without the reward relative to the stage before", "stack_c2f",
        ("objective.baseline_weight=2", "objective.previous_stage_weight=0"),  # the same gradient in expectation
        "Gu et al. 2018, eq. 15: its second term asks each stage to beat the one before",
    ),
    Ingredient(
        "hacap_worker", "worker alone, no goals", "hacap", (),
        "HACap §5: subgoals make captions more diverse and follow segments",
    ),
    Ingredient(
        "hacap_no_manager", "the leaked feature in place of the manager's goals", "hacap", ("model.manager=false",),
        "HACap §4.3: the manager sets subgoals from the leaked feature",
    ),
    Ingredient(
        "hacap_no_highway", "without highway", "hacap", (),
        "HACap §5.4: the highway makes attention follow segments",
    ),
    Ingredient(
        "hacap_unnormalised", "goals of any length", "hacap", (),
        "HACap §5.4: goals collapsed; normalisation is future work",
    ),
    Ingredient(
        "hacap_image", "the discriminator sees the image", "hacap", (),
        "HACap §3.4 gives it the image, §7 has text alone",
    ),
    Ingredient(
        "hacap_attention_gradient", "gradients of attention flow into the language model", "hacap",
        ("model.attention_gradient=true",), "HACap §4.2: none is sent back",
    ),
    Ingredient(
        "sat_soft_joint_aligned", "encoder learns too, supervised alignment", "sat_soft_joint", ALIGNED, SUPERVISED
    ),
    Ingredient(
        "sat_soft_joint_no_presence", "encoder learns too, without the word-presence loss", "sat_soft_joint",
        ("objective.word_presence=0",), "ours; multiple-instance learning as in Fang et al. (2015)",
    ),
)  # fmt: skip
ROWS = tuple(
    {name: row for one in INGREDIENTS for name, row in ((one.base, BASES[one.base]), (one.name, one.row))}.values()
)  # every base before what is taken from it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write what came out."""
    return command(
        __doc__, ROWS, known=old_papers.ROWS, pairs=[(one.name, one.base) for one in INGREDIENTS],
        name="ablations", metrics=("cider", "truth"), arguments=arguments,
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
