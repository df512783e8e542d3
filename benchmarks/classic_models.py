"""The models whose weights others publish, on scenes beside those of the papers.

    python benchmarks/classic_models.py --out runs/classic [--rows A,B] [KEY=VALUE ...]

`study.py` says how rows are trained and held against each other; its command resumes, and `--summary-only` scores the
runs that are done. With the same --out the rows of `old_papers.py` are those of its own table.
"""

from __future__ import annotations

from collections.abc import Sequence

import old_papers
from study import Row, command

BY_NAME = {row.name: row for row in old_papers.ROWS}
LUO = (
    "model.project_features=192", "model.mean_projection=own", "model.attention_bias=true", "model.embedding_relu=true",
)  # fmt: skip
FC = ("model.cell=lstm_maxout", "model.image=input")
ROWS = (
    BY_NAME["nic_lstm"],
    Row("nic_fc", "nic, FC of Rennie et al.", "nic_fc"),
    BY_NAME["sat_soft"],
    Row("att2in", "att2in, grid", "att2in"),
    Row(
        "att2in_luo", "att2in as published by Luo (att2in2)", "att2in",
        changes=("model.project_features=192", "model.embedding_relu=true"),
    ),
    BY_NAME["updown"],
    Row("updown_luo", "updown as published by Luo", "updown", changes=LUO),
    Row("transformer", "transformer, grid", "transformer"),
    Row("nic_fc_sc", "nic FC, then self-critical", "nic_self_critical", start="nic_fc", changes=FC),
    Row("att2in_sc", "att2in, then self-critical", "att2in_self_critical", start="att2in"),
    Row("transformer_sc", "transformer, then self-critical", "transformer_self_critical", start="transformer"),
)  # fmt: skip
PAIRS = (
    ("nic_fc", "nic_lstm"), ("att2in_luo", "att2in"), ("updown_luo", "updown"), ("att2in", "nic_fc"),
    ("nic_fc_sc", "nic_fc"), ("att2in_sc", "att2in"), ("transformer_sc", "transformer"), ("transformer", "updown"),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write what came out."""
    against = [(row.name, old_papers.REFERENCE) for row in ROWS if row.name != old_papers.REFERENCE]
    return command(__doc__, ROWS, known=old_papers.ROWS, pairs=[*against, *PAIRS], name="classic", arguments=arguments)


if __name__ == "__main__":
    raise SystemExit(main())
