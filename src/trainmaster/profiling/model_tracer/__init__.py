"""Looks at a model in the process and with the Python of its training environment, which has torch but
perhaps not Trainmaster: it imports the standard library, torch and the user's module only.

`memory` runs training steps with fake tensors of the CPU, and writes down what memory they take and give
back; what CUDA does otherwise (autocast, dropout masks, fused attention, cuDNN's recurrent layers) is put
in place. `graph` captures the model's operators, and measures them on a device.
"""
