"""Bayesian inference under differential privacy, usable without SQL, policy or storage.

Queries are linear functions of the unknown cell counts (and measure sums) of a data cube; the
history holds noisy answers to such queries; every new query is estimated from them with an exact
posterior.  Source: Xiao & Xiong, Bayesian Inference under Differential Privacy.
"""
