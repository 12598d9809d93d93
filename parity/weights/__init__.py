"""The map from torch's arrays to JAX's: found, printed, edited, followed either way.

layout        how one array is made of others: permuted, reshaped, joined, ...; as text
weight_map    WeightMap: an entry for every array of JAX's
tokens        names of arrays as words and numbers, and how alike two of them are
units         layers of either side as arrays with roles
torch_units   the layers of a torch module
jax_units     the layers of a JAX model, whatever library made them
recurrent     LSTM, GRU and plain cells: gates, fused or not, with one bias or two
pairing       how one layer's arrays are made of another's
matching      which layer belongs to which; find_map
contents      the map between weights that were copied already, and what was copied wrongly
"""
