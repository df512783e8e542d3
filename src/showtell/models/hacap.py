"""HACap, hierarchical adversarial captioning, with LeakGAN (Guo et al., 2018) where the paper is silent.

    a = {a_1 .. a_L}                                            the annotation vectors                       (§3.3)
    e_ti = W_e ReLU(L_img a_i + L_lang h_{t-1} + b_a),  alpha_t = softmax(e_t)                               (§3.5)
    z_t = beta_t sum_i alpha_ti a_i,  beta_t = sigmoid(w_beta . h_{t-1} + b_beta),  z_1 = mean_i a_i  (§3.5, §4.4)
    h_t = SRU(E y_{t-1}, z_t)                                   the worker                                   (§3.4)
    f_t = what the discriminator leaks of y_0 .. y_{t-1}        a feature, `models/discriminator.py`         (§4.3)
    g_t = W_g SRU(f_t)                                          the manager; the subgoal, 6 numbers          (§4.3)
    g_t = f_t                                                   `manager: false`
    w_t = W_psi (g_{t-c+1} + .. + g_t)                          the last c subgoals, embedded            (LeakGAN)
    O_t = A H_t,  H_t = U h_t as a matrix, M x k                a vector of k numbers for each word      (LeakGAN)
    p(y_t | y_<t) = softmax(O_t w_t)                                                                     (LeakGAN)

Their training is `objectives/adversarial.py`. With cross-entropy alone only the worker is trained, with manager and
discriminator constant; `goals: false` is the worker by itself, whose logits are A U h_t.

Where this differs from the paper, or the paper is silent:
 1. The paper calls three things f_t: the forget gate, the worker's features and the discriminator's leaked feature.
    Attention and gate at step t use the worker's features of the step before, h_{t-1}, because z_t goes into h_t.
 2. No gradient flows from attention and gate back into h_{t-1} (§4.2: "no gradient sent back to the language model");
    `attention_gradient: true` lets it flow, as in Xu et al. 2015. None flows from the words into the subgoals, and none
    from the subgoals into the leaked feature: each part has an objective of its own.
 3. The sum over t of alpha that §3.5 sets to 1 is the sum over regions; its doubly stochastic penalty is an option of
    the objective. At the first step alpha is the same for all regions and beta 1, which makes z_1 the mean (§4.4).
 4. O_t has V x k numbers. LeakGAN computes them by a layer of H x V k weights, 20 million for V = 5,000; ours have rank
    M: the same A for each of the k columns. The logits cost one product of M x V; O_t itself is never computed.
 5. `normalise_goals`: LeakGAN divides g_t by its length, HACap does not mention it and reports collapsed goals
    (§5.4). Both are implemented; on is the default.
 6. LeakGAN divides the logits by a temperature, higher in training; HACap has none.
 7. Initialised as in §4.4: SRUs orthogonal, Xavier elsewhere; embeddings, which it does not mention, normal with
    deviation 0.1.
 8. Dropout acts on h_t in front of U; the paper has none.
 9. Features may first go through a linear layer with ReLU (`project_features`), as Gu et al. 2018 do; off by default.
    The discriminator reads them unprojected.
10. `highway: false` removes the highway of the worker's SRU, which §5.4 holds responsible for segments.
11. `manager: false` leaves the manager out: the leaked feature, normalised as a subgoal is, takes its place. Horizon,
    W_psi, O_t and the discriminator stay, so the difference is what the manager adds. A constant instead of a subgoal
    would take all guidance away at once: W_psi times a constant makes one H x M matrix of U (times t/c in the first c
    steps), and that is the worker by itself (`goals: false`). Nothing learns to set a goal then, so that a reward for
    following it means nothing: `adversarial` refuses it.
12. §3.5 prints alpha with a third index n and a sum up to n; no other equation has it. We read it as the number of
    regions: there is one attention head. §5.4 says that single-head hard attention cannot do something that soft
    attention can, and breaks off; hard attention is not built here (`sat.py` has it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Size
from showtell.counter_rng import Dropout
from showtell.models.attention import AdditiveAttention, masked_softmax
from showtell.models.contract import Capability, DecoderConfig, Output, State
from showtell.models.discriminator import Discriminator, DiscriminatorImage, GoalDecoder, GoalOutput
from showtell.models.layers import Linear, feature_projection
from showtell.models.sru import Sru
from showtell.types import Features

Layers = Annotated[Size, Field(le=64)]


class HacapConfig(DecoderConfig):
    """Sizes and choices of HACap."""

    provides: ClassVar = {
        Capability.ATTENTION: {},
        Capability.GOALS: {"goals": True},
        Capability.MANAGER: {"goals": True, "manager": True},
    }

    name: Literal["hacap"] = "hacap"
    embedding_size: Size = Field(512, description="Size of the worker's word embeddings.")
    hidden_size: Size = Field(512, description="Size of the worker.")
    layers: Layers = Field(1, description="Number of the worker's recurrent layers.")
    highway: bool = Field(True, description="Use highway connections in the worker.")
    attention_size: Size = Field(512, description="Size of the hidden layer of the attention.")
    attention_gradient: bool = Field(
        False, description="Let gradients of attention and gate flow back into h_{t-1} (HACap §4.2 and default: none)."
    )
    project_features: Size | None = Field(
        None, description="Project features to this size by a linear layer with ReLU (default: no projection)."
    )
    output_size: Size = Field(512, description="M, size of the word vectors in the output layer.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Dropout on h_t, before U.")
    goals: bool = Field(True, description="Add manager and discriminator; if false, the worker runs alone.")
    goal_size: Size = Field(6, description="Size of a subgoal and of the leaked feature.")
    goal_embedding_size: Size = Field(16, description="k, size of the embedded goal.")
    horizon: Size = Field(4, description="c, number of steps that a subgoal looks ahead.")
    normalise_goals: bool = Field(True, description="Normalise subgoals to length 1.")
    manager: bool = Field(
        True, description="Compute subgoals by the manager; if false, the leaked feature takes their place."
    )
    manager_size: Size = Field(256, description="Size of the manager's hidden state.")
    discriminator_embedding_size: Size = Field(128, description="Size of the discriminator's word embeddings.")
    discriminator_size: Size = Field(128, description="Size of the discriminator's hidden states.")
    discriminator_layers: Layers = Field(3, description="Number of the discriminator's recurrent layers.")
    discriminator_image: Literal["none", "mean", "attended"] = Field(
        "none", description="Image input of the discriminator: none, the mean feature, or an attended feature."
    )


@dataclass(frozen=True)
class HacapImage:
    """The half of the state that belongs to an image."""

    vectors: Tensor  # (B, R, D) a
    projected: Tensor  # (B, R, A) L_img a + b_a
    is_region: Tensor  # (B, R)
    discriminator: DiscriminatorImage | None  # from its `encode_image`


@dataclass(frozen=True)
class HacapRows:
    """The states of the three networks of each row."""

    is_first: Tensor  # (B, N) bool, before the first word
    hidden: Tensor  # (B, N, H) the worker's features h_{t-1}
    worker: tuple[Tensor, ...]  # of each layer (B, N, H), its cells
    manager: tuple[Tensor, ...]  # of its layer (B, N, H_m), the cells; empty without manager
    discriminator: tuple[Tensor, ...]  # of each layer (B, N, H_d), the cells; empty without goals
    goals: Tensor | None  # (B, N, c - 1, G) the last subgoals, 0 where there is none


HacapState = State[HacapImage, HacapRows]


@dataclass(frozen=True)
class HacapInputs:
    """The output of `embed`."""

    worker: Tensor  # (..., 4 H, or 3 H without highway) to the worker's first layer
    discriminator: Tensor | None  # (..., E_d) to the discriminator


@dataclass(frozen=True, kw_only=True)
class HacapOutput(GoalOutput):
    """The input of the output layer, and the subgoals."""

    hidden: Tensor  # (B, N, H) h_t
    gate: Tensor  # (B, N) beta_t
    leak: Tensor | None = None  # (B, N, G) f_t
    guidance: Tensor | None = None  # (B, N, G) the sum of the last c subgoals, without gradient

    def diagnostics(self) -> dict[str, Tensor]:
        """The gate beta_t and the manager's subgoal at each word."""
        subgoals = {} if self.goal is None else {"subgoal": self.goal}
        return {"gate": self.gate.unsqueeze(-1), **subgoals}


class HacapDecoder(GoalDecoder[HacapInputs, HacapImage, HacapRows]):
    """Worker, manager, and the discriminator with its leaked feature."""

    config: HacapConfig

    def __init__(self, config: HacapConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.horizon = config.horizon
        self._has_manager = config.goals and config.manager
        size, hidden = config.project_features or feature_size, config.hidden_size
        self.feature_projection = feature_projection(feature_size, config.project_features)
        self.embedding = nn.Embedding(vocabulary_size, config.embedding_size)  # E
        self.attention = AdditiveAttention(  # L_img, b_a, L_lang, W_e
            feature_size=size, query_size=hidden, attention_size=config.attention_size, activation="relu"
        )
        self.beta = nn.Linear(hidden, 1)
        self.worker = Sru(config.embedding_size + size, hidden, layers=config.layers, highway=config.highway)
        self.dropout = Dropout(config.dropout)
        columns = config.goal_embedding_size if config.goals else 1
        self.actions = Linear(hidden, config.output_size * columns, bias=False)  # U
        self.output = Linear(config.output_size, vocabulary_size)  # A
        if config.goals:
            self.discriminator = Discriminator(  # of unprojected features, which the worker's loss cannot change
                vocabulary_size=vocabulary_size, feature_size=feature_size,
                embedding_size=config.discriminator_embedding_size, hidden_size=config.discriminator_size,
                layers=config.discriminator_layers, leak_size=config.goal_size, image=config.discriminator_image,
            )  # fmt: skip
            if self._has_manager:
                self.manager = Sru(config.goal_size, config.manager_size)
                self.to_goal = Linear(config.manager_size, config.goal_size)  # W_g
            self.goal_embedding = Linear(config.goal_size, columns, bias=False)  # W_psi
        self.initialise()

    def initialise(self) -> None:
        """Set the weights before training (HACap §4.4); SRUs have set their own."""
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1)
            elif isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def start(self, features: Features) -> HacapState:
        """L_img a, which does not depend on words, and zero cells."""
        vectors = self.feature_projection(features.vectors)
        has_goals = self.config.goals
        discriminator = self.discriminator.encode_image(features.vectors, features.is_region) if has_goals else None
        image = HacapImage(vectors, self.attention.project(vectors), features.is_region, discriminator)
        rows = HacapRows(
            is_first=torch.ones(len(vectors), 1, dtype=torch.bool, device=vectors.device),
            hidden=vectors.new_zeros(len(vectors), 1, self.config.hidden_size),
            worker=self.worker.start(vectors),
            manager=self.manager.start(vectors) if self._has_manager else (),
            discriminator=self.discriminator.sru.start(vectors) if has_goals else (),
            goals=vectors.new_zeros(len(vectors), 1, self.horizon - 1, self.config.goal_size) if has_goals else None,
        )
        return State(image, rows)

    def embed(self, words: Tensor) -> HacapInputs:
        """The words' inputs to the worker's first layer and to the discriminator."""
        discriminator = self.discriminator.embedding(words) if self.config.goals else None
        return HacapInputs(self.worker.first.project_input(self.embedding(words)), discriminator)

    def step(self, words: Tensor | HacapInputs, state: HacapState) -> tuple[HacapOutput, HacapState]:
        """Attend with the features of the step before, then a step of worker, discriminator and manager."""
        image, rows = state.image, state.rows
        inputs = words if isinstance(words, HacapInputs) else self.embed(words)
        alpha, beta = self._attend(image, rows)
        context = beta.unsqueeze(-1) * (alpha @ image.vectors)  # HACap §3.5: z_t
        products = inputs.worker + self.worker.first.project_input(context, offset=self.config.embedding_size)
        hidden, worker = self.worker.step(products, rows.worker)
        new = HacapRows(torch.zeros_like(rows.is_first), hidden, worker, (), (), None)
        if not self.config.goals:
            return HacapOutput(hidden=hidden, gate=beta, attention=alpha), State(image, new)
        assert inputs.discriminator is not None and rows.goals is not None
        leak, discriminator = self.discriminator.step(inputs.discriminator, image.discriminator, rows.discriminator)
        goal, manager = self._goal(leak.detach(), rows.manager)
        last = torch.cat([rows.goals, goal.detach().unsqueeze(2)], 2)  # (B, N, c, G)
        new = HacapRows(new.is_first, hidden, worker, manager, discriminator, last[:, :, 1:])
        output = HacapOutput(hidden=hidden, gate=beta, attention=alpha, leak=leak, goal=goal, guidance=last.sum(2))
        return output, State(image, new)

    def _attend(self, image: HacapImage, rows: HacapRows) -> tuple[Tensor, Tensor]:
        """alpha_t, (B, N, R), and beta_t, (B, N)."""
        query = rows.hidden if self.config.attention_gradient else rows.hidden.detach()
        scores = self.attention.scores(query, image.projected)  # HACap §3.5: e_t
        scores = scores.masked_fill(rows.is_first.unsqueeze(-1), 0.0)  # HACap §4.4: z_1
        beta = torch.sigmoid(self.beta(query).squeeze(-1))  # HACap §3.5: beta_t
        alpha = masked_softmax(scores, image.is_region)  # HACap §3.5: alpha_t
        return alpha, beta.masked_fill(rows.is_first, 1.0)

    def _goal(self, leak: Tensor, cells: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """g_t from f_t, (B, N, G), and the manager's new cells."""
        goal = leak
        if self._has_manager:
            hidden, cells = self.manager.step(self.manager.first.project_input(leak), cells)
            goal = self.to_goal(hidden)  # HACap §4.3: g_t
        goal = F.normalize(goal, dim=-1) if self.config.normalise_goals else goal  # HACap LeakGAN: g_t
        return goal, cells

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """O_t w_t as A (H_t w_t)."""
        assert isinstance(output, HacapOutput)
        actions = self.actions(self.dropout(output.hidden))  # (..., M k)
        if output.guidance is not None:
            goal_embedding = self.goal_embedding(output.guidance)  # HACap LeakGAN: w_t
            columns = torch.unflatten(actions, -1, (self.config.output_size, -1))
            actions = (columns @ goal_embedding.unsqueeze(-1)).squeeze(-1)
        return self.output(actions)  # HACap LeakGAN: O_t w_t
