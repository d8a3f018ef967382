"""How far the model is from what is measured: the rows of the experiments, each with the prediction made before it."""
