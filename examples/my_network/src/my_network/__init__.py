"""Residual networks with layer normalisation, in three backends, with a forward pass in NumPy to check them by.

    x_0 = tanh(W_0 obs + b_0),   x_i = x_{i-1} + tanh(W_i norm(x_{i-1}) + b_i),   output = W x + b

with one block for each hidden layer after the first; all hidden layers have the same width.
"""

MODULES = {"linen": "my_network.linen", "purejax": "my_network.purejax", "pytorch": "my_network.pytorch"}
"""Backend -> module that has the network."""
