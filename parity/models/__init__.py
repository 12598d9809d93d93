"""What a user hands over, made one thing: named arrays, and a call that takes them.

torch_models   a torch module, or a function and tensors, as a `TorchModel`
jax_models     Linen, NNX, Equinox, Haiku, `transformers`' Flax classes, or a function and a
               pytree, as a `JaxModel`; one file for each library beside it
functions      which framework a plain function is written in
trees          pytrees as arrays by path, and back
failures       what a user's code raises, in one line
"""
