"""The paper's experimental study, run again: its workload, its systems, ours beside them.

An experiment runs on stand-in data, or on a file of counts that is not protected here: its noise
is seeded, so that it can be repeated.  Nothing of it serves a query of the product.
Source: Xiao & Xiong, Section "Experimental study".
"""
