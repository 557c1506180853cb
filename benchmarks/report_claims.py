"""What the papers claim, each with the rows that test it here."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CLAIMS", "Claim"]


class Claim(NamedTuple):
    """What a paper says, the rows that test it here, and what they show of it."""

    says: str
    suite: str
    rows: tuple[str, ...]
    keys: tuple[str, ...] = ("error",)


CLAIMS: dict[str, list[Claim]] = {
    "daniely": [
        Claim("Theorem 1: a depth-2 network in general position is extracted exactly, in "
              "polynomial time, whatever its width", "two_layer",
              ("20-10-1 float64", "10-40-1 float64", "100-200-1 float64", "784-32-1 float64",
               "784-128-1 float64", "10-500-1 float64", "40-4000-1 float64"),
              ("error", "ratio")),
        Claim("Theorems 1 and 3 as printed, in exact arithmetic: rational networks with d ≤ 4 and "
              "k ≤ 6 come back bit for bit, up to order and positive scaling; Theorem 2 on the "
              "orthant (part: queries over what the boxes ask at most; ratio: over the theorem's "
              "order, such as d1 log2(1/δ) + d1 d)", "letter_daniely",
              ("one hidden layer, exact", "two hidden layers, exact",
               "Theorem 2, the orthant, exact", "two hidden layers, units that never switch",
               "one hidden layer, float64"), ("part", "ratio", "queries", "delta")),
        Claim("Lemma 2: networks of whole numbers, perturbed by 2^-d, are regular for its δ "
              "(promised) but for a chance of 2^-d; δ: the one measured", "letter_daniely",
              ("Lemma 2, depth 2", "Lemma 2, depth 3"), ("delta", "promised")),
        Claim("Lemma 15 and Theorem 5: how often a random top layer is flat somewhere, and "
              "Sauer's bound", "letter_daniely",
              ("Theorem 5, d1 = 2, d2 = 4", "Theorem 5, d1 = 2, d2 = 7",
               "Theorem 5, d1 = 2, d2 = 12"), ("mean:flat", "mean:bound")),
        Claim("General position: δ as Definition 1 measures it, and the largest with which the "
              "extraction as printed succeeded (needed); in practice all succeed",
              "letter_daniely", ("delta, random", "delta, trained"),
              ("delta", "needed", "lemma")),
        Claim("Theorem 2: the same on the non-negative orthant", "two_layer",
              ("20-10-1 orthant",), ("error", "ratio", "outside")),
        Claim("Theorem 3: depth-3 networks with d1 ≤ d", "three_layer",
              ("10-5-20-1", "10-10-10-1", "20-10-40-1", "80-40-20-1", "100-20-70-1", "40-20-80-1"),
              ("error", "ratio")),
        Claim("Lemma 4 and Theorem 5: for random networks the assumption on the top layer fails "
              "with a probability that falls with d2/d1 (failed: measured share; bound: the "
              "paper's sum, 1 where it says nothing)",
              "three_layer",
              ("d2/d1 = 0.25", "d2/d1 = 0.5", "d2/d1 = 1,", "d2/d1 = 2", "d2/d1 = 3.5"),
              ("mean:failed", "mean:bound")),
        Claim("Outside the assumptions nothing is promised; counted is a wrong RECOVERED",
              "three_layer", ("hostile:",), ("false_recovered",)),
    ],
    "chen": [
        Claim("Theorem 1.1: any one-hidden-layer network to square loss ε², in time and queries "
              "polynomial in d, k, 1/ε and the bounds on weights", "query_learner",
              ("random k=10", "random k=50, epsilon", "random k=200", "k=2000"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("No condition number enters: neurons may nearly coincide or cancel",
              "query_learner", ("5 clusters", "cancelling"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Example 1.2 and Remark 1.3: a bump of width w takes about 1/w queries to find",
              "query_learner",
              ("bump of width 0.1, epsilon", "bump of width 0.01", "bump of width 1e-3"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Beyond the paper: noise and float32", "query_learner",
              ("random k=50, noise", "bump of width 0.1, noise", "random k=50, float32",
               "bump of width 0.1, float32"),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Algorithms 1 to 4 as printed, constants of `AFFORDABLE`, and with the paper's own "
              "powers", "letter_chen", ("as printed",),
              ("error_over_epsilon", "queries", "certificate_queries")),
        Claim("Theorem 1.1 as certified: slopes up to k·R (success: no wrong RECOVERED; found: "
              "share that is RECOVERED)", "letter_chen", ("100 copies", "30 copies"),
              ("mean:found", "queries", "certificate_queries")),
    ],
    "jayaram": [
        Claim("Figure 2 and Theorem 3.4: 100 gradients and fewer give the whole span, of rank 80, "
              "of a random network's first layer", "span",
              ("random 784-80-10 output 0", "random 784-80-40-10 output 0",
               "random 784-80-40-30-10 output 0", "random 784-80-40-30-20-10 output 0"),
              ("angle", "gradients", "ratio")),
        Claim("The same for networks trained on MNIST", "span",
              ("mnist 784-80-10 output 0", "mnist 784-80-40-10 output 0",
               "mnist 784-80-40-30-10 output 0", "mnist 784-80-40-30-20-10 output 0"),
              ("angle", "gradients", "ratio")),
        Claim("Algorithm 1, non-adaptive: all gradients chosen in advance", "span",
              ("random 784-80-40-30-20-10 non-adaptive", "mnist 784-80-40-30-20-10 non-adaptive"),
              ("angle", "gradients")),
        Claim("Theorem 4.3, Algorithm 2: the span from 0/1 labels alone, differentiable units",
              "span", ("labels tanh 50-10", "labels softplus 50-10", "labels sigmoid 50-10",
                       "labels tanh 200-40"), ("angle", "queries")),
        Claim("Beyond the paper: the argmax of ReLU networks", "span",
              ("argmax random 100-20-10", "argmax mnist 784-20-10"), ("angle", "queries")),
        Claim("Figure 3: noise in the null space leaves the network's answers unchanged",
              "span", ("obfuscation",), ("logit_change", "unchanged", "noise_norm")),
        Claim("Figure 1: very thin layers on top hide part of the span (by queries, a linear "
              "head; ten networks a run)", "span", ("thin",), ("rank", "full", "half", "silent")),
        Claim("Figure 1 in both readings, one network a run, gradients analytic as in the paper: "
              "with a ReLU on the output node too, partial rank at [6, 3]; with a linear head, "
              "the whole (full: share of networks)", "letter_jayaram", ("figure 1",),
              ("rank", "mean:full", "mean:half", "silent")),
        Claim("The same, twelve networks a run: the median rank, how many are full and how many "
              "of rank 0 in twenty runs", "letter_jayaram", ("readings of figure 1",),
              ("range:rank", "range:full", "range:none")),
        Claim("Figure 2, tabulated: rank after so many samples", "letter_jayaram", ("figure 2",),
              ("rank 20", "rank 40", "rank 60", "rank 80", "rank 90", "rank 100")),
        Claim("Theorem 4.3, Algorithm 2 as printed (whole: share of networks whose rank is "
              "complete; missing: directions that Assumption 3 keeps back)", "letter_jayaram",
              ("Algorithm 2",), ("angle", "mean:whole", "missing", "queries")),
        Claim("Theorem 3.4: rank k/2 at least from its number of gradients, networks as in "
              "Lemma 3.1 (holds: share whose assumptions hold)", "letter_jayaram",
              ("Theorem 3.4",), ("rank", "gradients", "mean:holds")),
    ],
    "awasthi": [
        Claim("Theorem 4.1 and Algorithm 1: exact from exact tensors, m ≤ d", "samples",
              ("population order 1",), ("error", "error_as_published")),
        Claim("Theorem 4.2 at order 2: more units than inputs, from exact tensors", "samples",
              ("population order 2",), ("error", "error_as_published")),
        Claim("Theorem 3.1: from samples, m ≤ d", "samples",
              ("d=10 m=5 N=1e6", "d=20 m=10 N=1e6", "d=20 m=20 N=1e6", "d=50 m=20"),
              ("error", "moment_cosine", "seconds")),
        Claim("Theorem 3.2: from samples, more units than inputs", "samples",
              ("d=8 m=12 N=1e6", "d=20 m=40 N=1e6"), ("error", "moment_cosine", "seconds")),
        Claim("Corollary 3.3, smoothed analysis: a perturbation of size τ suffices", "samples",
              ("smoothed",), ("error", "moment_cosine")),
        Claim("Corollary 3.3 by the moments alone, no polish: from exact tensors it holds from "
              "tau = 0.01 on and fails at 0; from samples the error falls as N^-1/2 (slope), and "
              "what it takes to be within 0.1 (needed) grows fast as s_m(W) falls",
              "letter_awasthi",
              ("Corollary 3.3, exact tensors", "Corollary 3.3, samples",
               "samples needed for Corollary 3.3", "moments alone"),
              ("error", "s_m", "slope", "needed")),
        Claim("Algorithm 5 as printed; several outputs by joint moments; inputs of other laws are "
              "refused", "letter_awasthi", ("Algorithm 5", "three outputs", "inputs:"),
              ("function_error",)),
        Claim("Lemma 5.9: units with large biases are replaced by a linear function", "samples",
              ("large biases",), ("error", "function_error")),
        Claim("The paper's own route on samples", "samples", ("paper route",),
              ("error", "moment_cosine", "default_moment_cosine")),
        Claim("The moments' error falls as N^-1/2 (slope)", "samples", ("moment error",),
              ("slope",)),
        Claim("Beyond the paper: label noise, error over the Cramér-Rao bound (ratio)", "samples",
              ("noise 0.1",), ("error", "ratio")),
    ],
    "goel": [
        Claim("Theorem 1 and Claim 2: the landscape of a Hermite moment shows the units of a "
              "monotone network with high thresholds (landscape); Theorem 5: refined to any "
              "accuracy (angle)", "thresholds",
              ("sign union n=10 k=10 t=2 N=1e7", "sign union n=10 k=10 t=2 N=1e6",
               "relu n=10 k=10", "relu n=20 k=10 t=2.5 under a sigmoid"),
              ("landscape", "angle", "queries")),
        Claim("Theorem 6: intersections of halfspaces", "thresholds", ("halfspaces",),
              ("angle", "offset", "wrong", "queries")),
        Claim("Theorem 7, section 3: no linear term, by queries in low dimension", "thresholds",
              ("section 3",), ("angle", "queries")),
        Claim("Theorems 8 and 9: binary weights, exactly", "thresholds",
              ("theorem 8", "theorem 9"), ("exact", "seconds")),
        Claim("Theorem 10: orthonormal even units", "thresholds", ("theorem 10",), ("angle",)),
        Claim("B.6 and Theorem 13: sigmoid units from the biased sampler", "thresholds",
              ("sigmoid",), ("angle",)),
        Claim("B.7: powers of the units", "thresholds", ("B.7",), ("landscape", "angle")),
        Claim("Appendix E: two halves of a deep network", "thresholds", ("appendix E",),
              ("angle", "whole")),
        Claim("Appendix E, Remark 1: a cut behind a known or learned lower part (recovered: share "
              "of runs whose directions the samples determine; whole: error of the whole network)",
              "letter_goel", ("Appendix E",),
              ("whole", "angle", "mean:recovered", "overlap", "mean:false_recovered")),
        Claim("Theorem 7 from samples alone", "letter_goel", ("Theorem 7",), ("angle", "found")),
        Claim("Thresholds growing as sqrt(2 log d)", "letter_goel", ("t = sqrt",),
              ("landscape", "angle", "count")),
        Claim("B.4: G(W) as printed, and with rows held apart", "letter_goel", ("G(W)",),
              ("angle",)),
        Claim("Not in the paper: what general methods reach on the same samples", "thresholds",
              ("baseline",), ("angle", "wrong")),
    ],
}  # fmt: skip
