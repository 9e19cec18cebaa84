"""A toy language model small enough that everything its training loop estimates can also be enumerated."""
