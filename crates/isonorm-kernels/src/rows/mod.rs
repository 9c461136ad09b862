//! Kernels for groups that are contiguous in memory.
