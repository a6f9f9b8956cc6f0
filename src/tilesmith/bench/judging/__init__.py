"""What is told of an implementation beside its times: whether it is right, and the model's."""
