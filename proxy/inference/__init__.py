"""Bayesian inference under differential privacy, usable without SQL, policy or storage.

Queries are linear functions of the unknown cell counts (and measure sums) of a data cube; the
history holds noisy answers to such queries; every new query is estimated from them with an exact
posterior.  Source: Xiao & Xiong, Bayesian Inference under Differential Privacy.

    query, family     LinearQuery: exact integer coefficients; Family: the rows of one GROUP BY
    history           History: rows, weights, answers, and the best linear unbiased estimate
    families          what large families say, alone, together and beside the dense system
    laplace, mass     LaplaceSum: the paper's continuous posterior; its Monte Carlo and PC methods
    geometric         GeometricSum: the posterior of the noise that is drawn, never overstated
    least             the half-width that such a law meets, in few looks
    accounting        Account: what every cell has paid, exactly
    mechanism         the noise;  refinement: less of it, in its place
    plan              infer, or measure with the least budget

Names are imported from these modules, so that whoever needs queries alone waits for no SciPy.
"""
