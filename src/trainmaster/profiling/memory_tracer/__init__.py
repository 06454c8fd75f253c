"""Runs training steps of a model with fake tensors, and writes down what memory they take and give back.

It is run as a program by the Python of the training environment, which has torch but perhaps not Trainmaster:
it imports the standard library, torch and the user's module only. Tensors are fake ones of the CPU; what CUDA
does otherwise (autocast, dropout masks, fused attention, cuDNN's recurrent layers) is put in place.
"""
